"""Tools and files that know GPUs: for each, a function from its text to GPUs, and one that asks a machine."""
