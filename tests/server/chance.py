"""Values by chance that nobody expects, for fuzzers."""

ODD = (
    None, True, False, 0, -1, 1, 2, 7, 2**31, 2**63, 2**70, -(10**30), 1e300, -0.5, 0.3, "", "a", "\ud800", "\x00",
    "../../etc/passwd", "x" * 2000, "1" * 40, [], [None], {}, [["a"]], "(((", "embedding:x",
)  # fmt: skip
"""What JSON may have anywhere."""
