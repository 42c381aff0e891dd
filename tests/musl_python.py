"""A root of a system with musl's C library, as Alpine's, and Python: CPython of Debian's source by musl-gcc.

It takes ten minutes, and needs the packages musl-tools, make and dpkg-dev, and apt's lists of sources.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

NEWER = "trixie"
"""The release that musl's C library is of: NumPy's wheels need one of 1.2.4 or newer, for how they are relocated."""

COMPILER = """\
#!/bin/sh
case "$*" in *-print-multiarch) echo x86_64-linux-musl; exit;; esac
exec musl-gcc "$@"
"""
"""musl-gcc, which says of which system it is: Python's wheels are told by that."""

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def run(*command: object, **more: object) -> str:
    """Run a command to its end; what it printed. Raises CalledProcessError."""
    done = subprocess.run([*map(str, command)], check=True, stdout=subprocess.PIPE, text=True, **more)  # type: ignore[call-overload]
    return str(done.stdout)


def fetch(folder: Path) -> dict[str, Path]:
    """The unpacked sources of Debian's Python and of what it needs, by name; and musl's C library."""
    (python,) = {*re.findall(r"Depends: (python3\.\d+)\n", run("apt-cache", "depends", "python3"))}
    site = run("apt-get", "indextargets", "--format", "$(SITE)", "Origin: Debian").splitlines()[0]
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    lines = (f"deb-src [signed-by={KEYS}] {site} {release} main\n", f"deb [signed-by={KEYS}] {site} {NEWER} main\n")
    (folder / "sources.list").write_text("".join(lines))
    (folder / "lists" / "partial").mkdir(parents=True)
    apt = (
        "apt-get",
        "-qq",
        "-o",
        f"Dir::Etc::sourcelist={folder}/sources.list",
        "-o",
        f"Dir::State::lists={folder}/lists",
    )
    run(*apt, "update")
    run(*apt, "download", f"musl/{NEWER}", cwd=folder)
    (package,) = folder.glob("musl_*.deb")
    run("dpkg", "-x", package, folder / "musl")
    found = {}
    for name in (python, "libffi", "zlib"):
        run(*apt, "source", "--download-only", name, cwd=folder)
        (archive,) = folder.glob(f"{name}_*.orig.tar.*")
        (folder / name).mkdir()
        run("tar", "xf", archive, "--strip-components", 1, "-C", folder / name)
        found[name.rstrip("0123456789.")] = folder / name
    found["libc"] = next((folder / "musl").rglob("libc.so"))
    return found


def make_root(root: Path) -> None:
    """Musl and Python in a folder. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sources, parts, compiler = fetch(folder), folder / "parts", folder / "cc"
        compiler.write_text(COMPILER)
        compiler.chmod(0o755)
        known = {**os.environ, "CC": str(compiler), "CFLAGS": "-O1 -fPIC"}
        static = ("--disable-shared", "--disable-docs", "--disable-exec-static-tramp")
        with_parts = {
            **known,
            "CPPFLAGS": f"-I{parts}/include",
            "LDFLAGS": f"-L{parts}/lib",
            "LIBFFI_INCLUDEDIR": f"{parts}/include",
        }
        run("./configure", "--quiet", f"--prefix={parts}", *static, cwd=sources["libffi"], env=known)
        run("make", "-s", "install", cwd=sources["libffi"], env=known)
        run("./configure", "--static", f"--prefix={parts}", cwd=sources["zlib"], env=known)
        run("make", "-s", "libz.a", "install", cwd=sources["zlib"], env=known)
        options = ("--quiet", "--prefix=/usr", "--disable-test-modules", "PKG_CONFIG=false")
        run("./configure", *options, cwd=sources["python"], env=with_parts)
        run("make", "-s", f"-j{os.cpu_count()}", cwd=sources["python"], env=with_parts)
        run("make", "-s", "install", f"DESTDIR={root}", cwd=sources["python"], env=with_parts)
        run("./configure", f"--prefix={parts}", cwd=sources["zlib"], env=known)
        run("make", "-s", "clean", "all", cwd=sources["zlib"], env=known)
        shutil.copy(sources["zlib"] / "libz.so.1", root / "usr" / "lib")  # Pillow's wheels expect it of a system
        (root / "lib").mkdir()
        shutil.copy(sources["libc"], root / "lib" / "ld-musl-x86_64.so.1")  # which is also what starts programs
    for name in ("root", "tmp"):
        (root / name).mkdir()
