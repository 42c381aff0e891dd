"""The ONNX project's backend tests, run on graphc: `python -m tests.suite` prints a summary, `tests/test_suite.py` asserts it."""
