"""Our own code for processors that have fewer instructions than this one: the tests of some of it, compiled without them. A model
by those of `x86-64-v2` and `x86-64-v3` is in `test_cross.py`."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = ("test_channels_last.py", "test_composites.py")

FEWER = {
    "avx2": "-mno-avx512f -mtune=znver3",  # for which GCC likes to multiply and add in two steps
    "sse": "-mno-avx -mtune=generic",
}


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="the flags are those of x86-64")
@pytest.mark.parametrize("instructions", ["avx2", pytest.param("sse", marks=pytest.mark.thorough)])
def test_with_fewer_instructions(instructions):
    """Also that results have the same bits with any number of threads, whatever tiles these are cut into."""
    here = Path(__file__).parent
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        *(str(here / each) for each in TESTS),
    ]
    compiler = f"{os.environ.get('CC') or 'cc'} {FEWER[instructions]}"
    found = subprocess.run(
        command, env={**os.environ, "CC": compiler}, cwd=here.parent, capture_output=True, text=True, timeout=900
    )
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-2000:]
