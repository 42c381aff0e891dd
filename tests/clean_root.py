"""A wheel where there is nothing but a system and its Python, no compiler: installed, and used as anybody would.

    python -m tests.clean_root dist/graphc-…-manylinux_2_17_aarch64.whl [FOLDER]

Needs to be root, and debootstrap; for another processor than this machine's also qemu-user-static, whose entry in binfmt_misc
it makes if nobody did; for a wheel of musl's what `musl_python.py` needs. The root of the system, up to 600 MB, is made in the
folder, or taken if it is there; without a folder, in one that is removed. Pictures and numbers are compared with those of this
checkout, which another compiler made: they are as near as sums are that are added up in another order.
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

from graphc_build.targets import target_of
from tests import musl_python

PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}
"""Debian's names."""

ROOT = Path(__file__).parent.parent

COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "tcc", "zig")

GRAPHC = ("-c", "import os, sys; os.chdir(sys.argv.pop(1)); from graphc.cli import main; main()")

COMPILED = (("demo",), ("compile", "graphc-demo/digits.onnx", "-o", "digits.gguf"))

COMMANDS = (
    ("--version",),
    ("devices",),
    ("run", "digits.gguf", "--random", "0", "--dim", "batch=2", "-o", "numbers.npz"),
    ("image", "a red circle left of a blue square", "--seed", "3", "-o", "picture.png"),
)

ENTERED = {"HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb", "PATH": "/usr/bin:/bin"}
"""All that is in a root's environment."""

ROUNDING = 4e-6
"""Of the largest number: how far sums may lie apart that are added up in another order."""

FEW = 1e-3
"""Of a picture's numbers: those that such sums round to another whole number."""


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


def make_root(folder: Path, processor: str, musl: bool) -> None:
    """Debian of this machine's release, with Python, in a folder; or musl and Python."""
    if musl:
        musl_python.make_root(folder)
        return
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    options = (f"--arch={PROCESSORS[processor]}", "--variant=minbase", "--include=python3,ca-certificates")
    run("debootstrap", "--foreign", *options, release, folder)
    run("chroot", folder, "/debootstrap/debootstrap", "--second-stage")


def install(wheel: Path, folder: Path, processor: str, musl: bool) -> None:
    """The wheel and all that `graphc[images]` needs, as pip finds it for that system, where its Python looks."""
    shown = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    said = subprocess.run(
        ["chroot", folder, "/usr/bin/python3", "-c", shown], check=True, capture_output=True, text=True
    )
    (place,) = (folder / "usr" / "lib").glob("python3.*/site-packages" if musl else "python3/dist-packages")
    platforms = [each for tag in target_of(wheel).accepted for each in ("--platform", tag)]
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


def check_pictures(picture: np.ndarray, expected: np.ndarray) -> None:
    """Raises AssertionError if pictures, of whole numbers with a sign, differ by more than such sums."""
    off = np.abs(picture - expected)
    print(f"pictures differ by at most {off.max()} of 255, in {np.count_nonzero(off)} of {off.size} numbers")
    assert off.max() <= 2
    assert np.count_nonzero(off) <= FEW * off.size


def picture_of(path: Path) -> np.ndarray:
    """A picture's numbers, which can be subtracted."""
    return np.asarray(Image.open(path), dtype=np.int16)


def use(python: tuple[object, ...], folder: Path, env: dict[str, str], **more: object) -> tuple[np.ndarray, np.ndarray]:
    """What the commands give, by a Python and what says where it works, which is a folder: a picture, and a model's numbers."""
    for each in COMMANDS if (folder / "digits.gguf").exists() else (*COMPILED, *COMMANDS):
        print("$ graphc", *each, flush=True)
        run(*python, *each, env=env, **more)
    with np.load(folder / "numbers.npz") as numbers:
        return picture_of(folder / "picture.png"), numbers["scores"]


def main(wheel: Path, folder: Path) -> None:
    """Raises CalledProcessError or AssertionError at what does not work."""
    (tag,) = parse_wheel_filename(wheel.name)[3]
    processor = next(each for each in PROCESSORS if tag.platform.endswith(each))
    same, musl = processor == platform.machine(), tag.platform.startswith("musl")
    if not same:
        emulate(processor)
    if not folder.exists():
        make_root(folder, processor, musl)
    install(wheel.resolve(), folder, processor, musl)
    assert not any(shutil.which(each, path=str(folder / "usr" / "bin")) for each in COMPILERS)
    python = (shutil.which("chroot"), folder, "/usr/bin/python3", *GRAPHC, "/root")
    with tempfile.TemporaryDirectory() as here:
        known = {**os.environ, "PYTHONPATH": str(ROOT)}
        expected, exact = use((sys.executable, *GRAPHC, here), Path(here), known, stdout=subprocess.DEVNULL)
        if musl:  # where models are run, not compiled
            refused = subprocess.run([*python, "demo"], env=ENTERED, stderr=subprocess.PIPE, text=True, check=False)
            print("$ graphc demo", refused.stderr, sep="\n", end="", flush=True)
            assert refused.returncode == 1
            assert "onnx has no wheel for musl" in refused.stderr
            shutil.copy(Path(here) / "digits.gguf", folder / "root")
    picture, numbers = use(python, folder / "root", ENTERED)
    apart = np.abs(numbers - exact).max() / np.abs(exact).max()
    print(f"scores differ by {apart:.1e} of the largest")
    assert apart <= ROUNDING
    check_pictures(picture, expected)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else Path(temporary) / "root")
