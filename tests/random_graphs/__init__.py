"""Random valid graphs: some hundred in `tests/test_random_graphs.py`, thousands by `python -m tests.random_graphs 5000`."""
