"""The size of graphc[images] with every dependency, in a fresh virtual environment.

    python benchmarks/installed_size.py

Installs the project of this folder and prints the megabytes of each package that it brought, largest first. The bound is 200.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from pathlib import Path

BOUND = 200
TOOLS = {"pip", "setuptools", "wheel", "_distutils_hack", "pkg_resources"}
"""What the environment itself brings."""


def sizes(folder: Path) -> Counter[str]:
    """Bytes under each entry of site-packages; metadata folders count for their package."""
    found: Counter[str] = Counter()
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            name = path.relative_to(folder).parts[0].split("-")[0]
            if name not in TOOLS:
                found[name] += path.stat().st_size
    return found


def main() -> None:
    """Print a table."""
    project = Path(__file__).parent.parent
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True)
        python = Path(scratch) / ("Scripts" if os.name == "nt" else "bin") / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"{project}[images]"], check=True)
        where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        found = sizes(Path(subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()))
    print("| package | MB |\n| --- | --- |")
    for name, size in found.most_common(15):
        print(f"| {name} | {size / 1e6:.1f} |")
    total = sum(found.values()) / 1e6
    print(f"| all | {total:.1f} |")
    sys.exit(total > BOUND)


if __name__ == "__main__":
    main()
