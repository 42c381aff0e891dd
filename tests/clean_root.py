"""A wheel where there is nothing but Debian and its Python, no compiler: installed, and used as anybody would.

    python -m tests.clean_root dist/graphc-…-manylinux_2_17_aarch64.whl [FOLDER]

Needs to be root, and debootstrap; for another processor than this machine's also qemu-user-static, whose entry in binfmt_misc it
makes if nobody did. The root of the system, some 600 MB, is made in the folder, or taken if it is there; without a folder, in one
that is removed. Pictures and numbers are compared with those of this checkout: the same bits on the same kind of processor, else
as near as sums are that are added up in another order.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from packaging.utils import parse_wheel_filename
from PIL import Image

PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}
"""Debian's names."""

ROOT = Path(__file__).parent.parent

COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "tcc", "zig")

GRAPHC = ("-c", "from graphc.cli import main; main()")

COMMANDS = (
    ("--version",),
    ("devices",),
    ("demo",),
    ("compile", "graphc-demo/digits.onnx", "-o", "digits.gguf"),
    ("run", "digits.gguf", "--random", "0", "--dim", "batch=2", "-o", "numbers.npz"),
    ("image", "a red circle left of a blue square", "--seed", "3", "-o", "picture.png"),
)

ROUNDING = 4e-6
"""Of the largest number: how far sums may lie apart that are added up in another order."""


def run(*command: object, **more: object) -> None:
    """Run a command to its end. Raises CalledProcessError."""
    subprocess.run([*map(str, command)], check=True, **more)  # type: ignore[call-overload]


def emulate(processor: str) -> None:
    """Have Linux run programs of another processor by QEMU, in other roots too."""
    known = Path("/proc/sys/fs/binfmt_misc")
    if not (known / "register").exists():
        run("mount", "-t", "binfmt_misc", "binfmt_misc", known)
    if not (known / f"qemu-{processor}").exists():
        (known / "register").write_bytes(Path(f"/usr/lib/binfmt.d/qemu-{processor}.conf").read_bytes())


def make_root(folder: Path, processor: str) -> None:
    """Debian of this machine's release, with Python, in a folder."""
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    options = (f"--arch={PROCESSORS[processor]}", "--variant=minbase", "--include=python3,ca-certificates")
    run("debootstrap", "--foreign", *options, release, folder)
    run("chroot", folder, "/debootstrap/debootstrap", "--second-stage")


def install(wheel: Path, folder: Path, processor: str) -> None:
    """The wheel and all that `graphc[images]` needs, as pip finds it for that system, where its Python looks."""
    shown = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    said = subprocess.run(["chroot", folder, "python3", "-c", shown], check=True, capture_output=True, text=True)
    place = folder / "usr" / "lib" / "python3" / "dist-packages"
    tags = [f"manylinux_2_{minor}_{processor}" for minor in range(17, 37)]
    platforms = [each for tag in tags for each in ("--platform", tag)]
    options = (
        "--quiet",
        "--only-binary=:all:",
        "--upgrade",
        "--python-version",
        said.stdout.strip(),
        "--target",
        place,
    )
    run(sys.executable, "-m", "pip", "install", *options, *platforms, f"{wheel}[images]")


def use(python: tuple[object, ...], folder: Path, **more: object) -> tuple[np.ndarray, np.ndarray]:
    """What the commands give, by a Python, in a folder: a picture, and a model's numbers."""
    for each in COMMANDS:
        print("$ graphc", *each, flush=True)
        run(*python, *GRAPHC, *each, **more)
    with np.load(folder / "numbers.npz") as numbers:
        return np.asarray(Image.open(folder / "picture.png"), dtype=np.int16), numbers["scores"]


def main(wheel: Path, folder: Path) -> None:
    """Raises CalledProcessError or AssertionError at what does not work."""
    (tag,) = parse_wheel_filename(wheel.name)[3]
    processor = next(each for each in PROCESSORS if tag.platform.endswith(each))
    same = processor == platform.machine()
    if not same:
        emulate(processor)
    if not folder.exists():
        make_root(folder, processor)
    install(wheel.resolve(), folder, processor)
    assert not any(shutil.which(each, path=str(folder / "usr" / "bin")) for each in COMPILERS)
    entering = (
        "chroot",
        folder,
        "env",
        "-i",
        "-C",
        "/root",
        "HOME=/root",
        "LANG=C.UTF-8",
        "TERM=dumb",
        "PATH=/usr/bin:/bin",
    )
    picture, numbers = use((*entering, "python3"), folder / "root")
    with tempfile.TemporaryDirectory() as here:
        known = {**os.environ, "PYTHONPATH": str(ROOT)}
        expected, exact = use((sys.executable,), Path(here), cwd=here, env=known, stdout=subprocess.DEVNULL)
    off, apart = np.abs(picture - expected), np.abs(numbers - exact).max() / np.abs(exact).max()
    print(f"pictures differ by at most {off.max()} of 255, in {np.count_nonzero(off)} of {off.size} numbers")
    print(f"scores differ by {apart:.1e} of the largest")
    assert off.max() <= (0 if same else 2)
    assert apart <= (0 if same else ROUNDING)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else Path(temporary) / "root")
