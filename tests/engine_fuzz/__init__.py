"""Engines with a valid checksum from a stranger: an error or a result, whatever they say, and never the end of the process.

Some hundred in `tests/test_engine_fuzz.py`, as many as wanted by `python -m tests.engine_fuzz 100000`.
"""
