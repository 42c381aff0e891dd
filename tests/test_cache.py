"""The user's cache: machine code is loaded from it only if it is the user's own and whole; without a cache all works too."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from remarks import records, remarked

from graphc import cache, ggml_source
from graphc.backends import install as backends
from graphc.errors import BuildError
from graphc.ggml_library import ggml_include
from graphc.kernels.c import compiled
from graphc.kernels.c.compiler import find_compiler
from graphc.runtime import peaks
from graphc.targets.ggml.run.choose import choices
from graphc_images import hashes

only_posix = pytest.mark.skipif(os.name == "nt", reason="users of POSIX systems")

SOURCE = "int graphc_answer(void) { return 42; }\n"

PLANTED = """
#include <stdio.h>
__attribute__((constructor)) static void planted(void) {{ fclose(fopen("{marker}", "w")); }}
int graphc_answer(void) {{ return 13; }}
"""


@pytest.fixture(autouse=True)
def _new_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compiled, "_loaded", {})
    cache.warn_once.cache_clear()


def answer(source: str = SOURCE) -> int:
    """What the library gives, loaded as another process would."""
    compiled._loaded.clear()
    compiler, include = find_compiler(), ggml_include()
    assert compiler is not None
    assert include is not None
    return int(compiled.load_library(source, compiler, include).graphc_answer())


def kernels() -> Path:
    return cache.cache_folder("kernels")


def the_library() -> Path:
    (library,) = kernels().iterdir()
    return library


def belongs_to_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a file or folder to another user; or become another, where only root may do that."""
    if os.geteuid() == 0:
        os.chown(path, 4242, 4242, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)


def planted(name: str, tmp_path: Path) -> tuple[bytes, Path]:
    """A library under another name, which writes a file when it is loaded."""
    marker = tmp_path / f"{name}-was-loaded"
    (tmp_path / "work").mkdir()
    compiler = find_compiler()
    assert compiler is not None
    command = (*compiler, "-fPIC", "-shared")
    return compiled.compile_library(PLANTED.format(marker=marker), command, tmp_path / "work"), marker


def test_a_library_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer() == 42
    library = the_library()
    assert library.name.endswith(f"-{hashlib.sha256(library.read_bytes()).hexdigest()[:32]}{compiled.ENDING}")
    monkeypatch.setattr(compiled, "compile_library", lambda *args: pytest.fail("compiled again"))
    assert answer() == 42


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": cut,
    "one bit": flip,
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "a link": pytest.param(link, marks=only_posix),
    "a pipe": pytest.param(fifo, marks=only_posix),
    "of all to write": pytest.param(lambda path: path.chmod(0o666), marks=only_posix),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_library_is_compiled_again(damage: object) -> None:
    assert answer() == 42
    library = the_library()
    before = library.read_bytes()
    damage(library)  # type: ignore[operator]
    assert answer() == 42
    assert the_library() == library
    assert library.read_bytes() == before
    assert not library.is_symlink()


def test_a_library_that_cannot_be_loaded_here_is_compiled_again() -> None:
    assert answer() == 42
    key = the_library().name.split("-")[0]
    content = b"\x7fELF of another system"
    (kernels() / compiled._file_name(key, content)).write_bytes(content)
    assert answer() == 42
    assert len(list(kernels().iterdir())) == 2, "each system keeps its own"


def test_what_happens_to_the_file_after_it_was_checked_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer() == 42
    other, marker = planted("other", tmp_path)
    read = cache.read_own

    def swapped(path: Path) -> bytes | None:
        content = read(path)
        path.write_bytes(other)
        return content

    monkeypatch.setattr(cache, "read_own", swapped)
    assert answer() == 42
    assert not marker.exists()


@only_posix
def test_a_planted_library_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user makes the cache in a shared folder first, with what he wants to be run in it."""
    assert answer() == 42
    library = the_library()
    other, marker = planted("other", tmp_path)
    library.unlink()
    (kernels() / compiled._file_name(library.name.split("-")[0], other)).write_bytes(other)
    belongs_to_another(kernels().parent, monkeypatch)
    with remarked("belongs to another user; set XDG_CACHE_HOME"):
        assert answer() == 42
    assert not marker.exists()


@only_posix
def test_a_single_planted_file_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer() == 42
    library = the_library()
    other, marker = planted("other", tmp_path)
    name = compiled._file_name(library.name.split("-")[0], other)
    library.rename(kernels() / name)
    (kernels() / name).write_bytes(other)
    belongs_to_another(kernels() / name, monkeypatch)
    if os.geteuid() == 4242:
        pytest.skip("only root can give a file away")
    assert answer() == 42
    assert not marker.exists()


@only_posix
def test_a_link_of_another_user_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "cache" / "graphc").symlink_to(tmp_path / "mine")
    assert answer() == 42
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["kernels"], "one of the user's own is"
    belongs_to_another(tmp_path / "cache" / "graphc", monkeypatch)
    with pytest.raises(PermissionError, match="belongs to another user"):
        cache.cache_folder("kernels")


@only_posix
def test_others_may_not_write_to_the_cache(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert answer() == 42
        assert {path.stat().st_mode & 0o777 for path in (kernels(), kernels().parent)} == {0o700}
        assert the_library().stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
    kernels().parent.chmod(0o777)
    kernels().chmod(0o777)
    assert answer() == 42
    cache.make_cache_folder("kernels")
    assert not (kernels().parent.stat().st_mode | kernels().stat().st_mode) & 0o022


SCRIPT = """
import ctypes, sys
from graphc.kernels.c.compiled import load_library
from graphc.ggml_library import ggml_include
from graphc.kernels.c.compiler import find_compiler
print(load_library(sys.argv[1], find_compiler(), ggml_include()).graphc_answer())
"""


@only_posix
@pytest.mark.parametrize("home", ["a file", "none"])
def test_without_a_cache_nothing_is_left_behind(tmp_path: Path, home: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "tmp").mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME", "TMPDIR")}
    environment = {**kept, "TMPDIR": str(tmp_path / "tmp")} | (
        {"HOME": str(tmp_path / "file")} if home == "a file" else {}
    )
    script = SCRIPT if home == "a file" else f"import pwd; pwd.getpwuid = {{}}.__getitem__\n{SCRIPT}"
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", script, SOURCE], env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
        assert "the cache cannot be written, so what is computed is not kept: " in done.stderr
        assert os.listdir(tmp_path / "tmp") == []


@only_posix
@pytest.mark.parametrize("place", ["/proc/none", "file"])
def test_a_cache_that_cannot_be_written_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Whatever was to be kept, by whom."""
    (tmp_path / "file").write_text("some")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / place))
    with records() as found:
        assert hashes.kept(tmp_path / "file") == hashlib.sha256(b"some").hexdigest()
        cache.keep("kernels", "other", b"")
        assert choices.read_choices(cache.cache_folder("ways") / "some.txt") == b""
    (message,) = found
    assert message.startswith(f"the cache cannot be written, so what is computed is not kept: {tmp_path / place}: ")


@only_posix
def test_a_cache_that_is_full_is_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler works where the system has room, and what it made is loaded there."""

    def full(self: Path, content: bytes) -> int:
        if self.is_relative_to(tmp_path / "cache"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, content)

    write = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=1, f_frsize=4096))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with records() as found:
        assert answer() == 42
    (message,) = found
    assert message.startswith("the cache cannot be written, so what is computed is not kept: ")
    assert os.listdir(tmp_path / "tmp") == []


def test_a_cache_that_can_only_be_read_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer() == 42

    def refuse(name: str) -> Path:
        raise PermissionError(13, "permission denied", "cache")

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for module in (cache, compiled):
        monkeypatch.setattr(module, "make_cache_folder", refuse)
    monkeypatch.setattr(compiled, "compile_library", lambda *args: pytest.fail("compiled again"))
    assert answer() == 42
    assert os.name == "nt" or os.listdir(tmp_path / "tmp") == []


def test_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", nobody)
    assert backends.installed() == {}
    assert peaks._read("x.json") is None
    with pytest.raises(FileNotFoundError, match="no home folder: set XDG_CACHE_HOME"):
        choices.remember(cache.cache_folder("ways") / "x", "a device", {})
    with pytest.raises(FileNotFoundError, match="no home folder"):
        ggml_source.ggml_source()


def test_what_a_killed_process_left_is_removed_a_day_later() -> None:
    assert answer() == 42
    new, old = kernels() / f"{compiled.SCRATCH}new", kernels() / f"{compiled.SCRATCH}old"
    for each in (new, old):
        each.mkdir()
        (each / "kernels.c").write_text(SOURCE)
    long_ago = time.time() - 2 * compiled.A_DAY
    os.utime(old, (long_ago, long_ago))
    assert answer() == 42
    assert old.is_dir(), "nothing was compiled"
    assert answer(SOURCE.replace("42", "43")) == 43
    assert new.is_dir()
    assert not old.exists()


@only_posix
def test_a_backend_of_another_user_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cache.make_cache_folder("backends") / backends.RELEASE / "vulkan"
    folder.mkdir(parents=True)
    library = folder / "libggml-vulkan.so"
    library.write_bytes(b"")
    library.chmod(0o600)
    assert list(backends.installed()) == ["vulkan"]
    library.chmod(0o660)
    with remarked("not yours alone"):
        assert backends.installed() == {}
    library.chmod(0o600)
    belongs_to_another(cache.cache_folder("backends").parent, monkeypatch)
    with remarked("belongs to another user"):
        assert backends.installed() == {}


@only_posix
def test_source_that_others_may_write_is_not_built() -> None:
    folder = cache.make_cache_folder("ggml") / ggml_source.RELEASE
    folder.mkdir()
    assert ggml_source.ggml_source() == folder
    folder.chmod(0o777)
    with pytest.raises(BuildError, match="not yours alone"):
        ggml_source.ggml_source()


def test_libraries_do_not_share_a_name() -> None:
    """The system takes a path that it knows for the library that it has."""
    found = [answer(SOURCE.replace("42", str(number))) for number in range(4)]
    assert found == [0, 1, 2, 3]
    assert isinstance(next(iter(compiled._loaded.values())), ctypes.CDLL)
