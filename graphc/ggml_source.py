"""ggml's source, of the version that ggml-python installed: pip gets it from ggml-python's source distribution, once."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

from graphc.cache import cache_folder, is_own, make_cache_folder
from graphc.errors import BuildError
from graphc.trace import SILENT, Progress

VERSION = "0.0.45"
SHA256 = "10aac52075cf3c7ef2b00d6c35b1c23f7b018dbeff8ae8df67339b4be1166f05"
"""The hash of `ggml_python-<VERSION>.tar.gz`; pip takes no other file, and neither does `unpack`."""

RELEASE = f"{VERSION}-{SHA256[:16]}"
"""What folders are called that belong to this source."""

INSIDE = PurePosixPath(f"ggml_python-{VERSION}/vendor/ggml")
"""Where the archive has ggml."""

LARGEST = 1 << 29
"""Bytes that the unpacked source may have, several times what it has."""

DOWNLOAD_SECONDS = 1800


def ggml_source(progress: Progress = SILENT) -> Path:
    """The folder of ggml's source, from the user's cache if it is there. Raises BuildError, and OSError without a cache."""
    folder = cache_folder("ggml") / RELEASE
    with progress.stage("get ggml's source", 1) as step:
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(prefix=".ggml-", dir=make_cache_folder("ggml")) as beside:
                archive = download(Path(beside))
                unpack(archive, Path(beside) / "source")
                _place(Path(beside) / "source", folder)
        if not is_own(folder):
            raise BuildError(f"{folder} is not yours alone: remove it, and it is made again")
        step(1)
    return folder


def download(folder: Path) -> Path:
    """Have pip put the source distribution into a folder. Raises BuildError with what pip says."""
    requirement = folder / "requirement.txt"
    requirement.write_text(f"ggml-python=={VERSION} --hash=sha256:{SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-P", "-m", "pip", "download", "--disable-pip-version-check", "--no-binary", "ggml-python",
               "--no-deps", "--require-hashes", "--requirement", str(requirement), "--dest", str(folder)]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=DOWNLOAD_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"pip could not get ggml's source: {error}") from error
    archive = folder / f"ggml_python-{VERSION}.tar.gz"
    if done.returncode != 0 or not archive.is_file():
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-10:])
        raise BuildError(f"pip could not get ggml's source:\n{said}")
    return archive


def unpack(archive: Path, target: Path, sha256: str = SHA256) -> None:
    """Unpack ggml's folder of the archive: plain files and folders below it, nothing else. Raises BuildError."""
    with archive.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            raise BuildError(f"{archive.name} is not the file that this version of graphc knows")
    left = LARGEST
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                place = _place_of(member)
                if place is None:
                    continue
                left -= member.size
                if left < 0:
                    raise BuildError(f"{archive.name} is larger than ggml's source can be")
                _unpack_file(tar, member, target / place)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise BuildError(f"{archive.name} could not be unpacked: {error}") from error
    if not (target / "CMakeLists.txt").is_file():
        raise BuildError(f"{archive.name} does not hold ggml's source")


def _place_of(member: tarfile.TarInfo) -> PurePosixPath | None:
    """Where a file goes, relative to the target; None for what is not a file of ggml's folder. Raises BuildError."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or "\\" in member.name or ":" in member.name:
        raise BuildError(f"the archive of ggml's source has an entry that leads out of it: {member.name!r}")
    return path.relative_to(INSIDE) if member.isfile() and path.is_relative_to(INSIDE) else None


def _unpack_file(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    content = tar.extractfile(member)
    assert content is not None
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(content, file)


def _place(unpacked: Path, folder: Path) -> None:
    """Move the unpacked source to its place; another process may have been faster, which is as good."""
    unpacked.chmod(0o700)
    try:
        os.replace(unpacked, folder)
    except OSError as error:
        if not folder.is_dir():
            raise BuildError(f"{folder} cannot be written: {error}") from error
