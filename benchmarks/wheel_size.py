"""What a wheel weighs: itself, and all that is installed with it on its system, a line for each package.

python benchmarks/wheel_size.py dist/graphc-….whl

The wheel may be of another system than this one, with the same version of Python.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path

from graphc_build.targets import target_of

LIMITS = {"wheel": 40, "installed": 200}
"""Megabytes."""


def installed(wheel: Path, folder: Path) -> dict[str, float]:
    """The megabytes of each package that `graphc[images]` needs, the largest first."""
    options = ["--quiet", "--no-compile", "--only-binary=:all:", "--target", str(folder)]
    platforms = [each for tag in target_of(wheel).accepted for each in ("--platform", tag)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *platforms, f"{wheel}[images]"], check=True)
    sizes = {}
    for each in distributions(path=[str(folder)]):
        found = {Path(str(each.locate_file(file))) for file in each.files or []}
        sizes[each.metadata["Name"]] = sum(path.stat().st_size for path in found if path.is_file()) / 1e6
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def main(wheel: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        packages = installed(wheel, Path(folder))
    for name, megabytes in packages.items():
        print(f"{name:24}{megabytes:8.1f} MB")
    print(f"{'wheel':24}{wheel.stat().st_size / 1e6:8.1f} MB of at most {LIMITS['wheel']}")
    print(f"{'installed':24}{sum(packages.values()):8.1f} MB of at most {LIMITS['installed']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
