"""What a backend needs on a machine, and what mends what is missing."""
