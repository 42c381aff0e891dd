"""`python -m tests.suite [--cpp | --device=NAME] [PATTERN]`: run ONNX's backend tests (those whose names match), and print how
they went: on the CPU, or on a device; with `--cpp`, through compiled C++ projects too.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

from .cases import GROUPS, load_cases
from .cpp import run_cpp
from .pool import run_all
from .run import Outcome, run_case

STATUSES = ("pass", "drawn", "refused", "wrong", "error", "crash", "timeout")


def main(*args: str) -> None:
    pattern = next((arg for arg in args if not arg.startswith("--")), "")
    device = next((arg.removeprefix("--device=") for arg in args if arg.startswith("--device=")), "CPU")
    cases = [case for case in load_cases() if re.search(pattern, f"{case.group}/{case.name}")]
    start = time.monotonic()
    if "--cpp" in args:
        with tempfile.TemporaryDirectory() as folder:
            outcomes = run_cpp(cases, Path(folder))
    else:
        outcomes = run_all(cases, partial(run_case, device=device))
    for outcome in outcomes:
        if outcome.status not in ("pass", "drawn", "refused") or len(cases) < 100:
            print(f"{outcome.status:8} {outcome.group}/{outcome.name}: {outcome.reason}")
    print(reasons(outcomes))
    print(table(outcomes))
    print(f"{time.monotonic() - start:.0f} s")


def table(outcomes: list[Outcome]) -> str:
    """How many cases of each group went how."""
    counts = Counter((outcome.group, outcome.status) for outcome in outcomes)
    lines = [f"{'':18}" + "".join(f"{status:>9}" for status in STATUSES)]
    for group in GROUPS:
        lines.append(f"{group:18}" + "".join(f"{counts[group, status]:9}" for status in STATUSES))
    totals = Counter(outcome.status for outcome in outcomes)
    lines.append(f"{'all':18}" + "".join(f"{totals[status]:9}" for status in STATUSES))
    return "\n".join(lines)


def reasons(outcomes: list[Outcome]) -> str:
    """Why cases were refused, the most frequent reason first, with names left out of what is compared."""
    found: dict[str, list[str]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.status == "refused":
            reason = re.sub(r"^\d+ unsupported nodes?: ", "", outcome.reason)
            reason = re.sub(r"^\S+ (\(\w+\))", r"\1", re.sub(r"%?\b(\w*\d\w*)\b", "#", reason))
            found[reason].append(outcome.name)
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    return "\n".join(f"{len(names):5}  {reason}   [{', '.join(names[:3])}]" for reason, names in ordered)


if __name__ == "__main__":
    main(*sys.argv[1:])
