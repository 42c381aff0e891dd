"""Files in and out: links, devices, pipes, full disks, signals, other people's files."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from cpp_programs import PROGRAMS
from small_models import dense_model, stored

from graphc import cmake, files
from graphc.errors import BuildError
from graphc.files import (
    LIST,
    check_folder,
    check_target,
    map_file,
    open_regular,
    read_file,
    replacing,
    replacing_folder,
)
from graphc.targets.ggml.cpp.project import write_project

pytestmark = pytest.mark.skipif(os.name == "nt", reason="files of POSIX systems")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return stored(dense_model(), tmp_path / "m.onnx")


def write(path: Path, content: bytes = b"new") -> None:
    with replacing(path) as unfinished:
        unfinished.write_bytes(content)


def everything(folder: Path) -> dict[str, bytes | str]:
    """The files below a folder, and links by where they lead."""
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


# Files


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_bytes(b"old")
    for name, target in (("link", "there/file"), ("chain", "link"), ("dangling", "there/new")):
        (tmp_path / name).symlink_to(target)
        write(tmp_path / name, name.encode())
    assert everything(tmp_path) == {
        "link": "there/file", "chain": "link", "dangling": "there/new", "there/file": b"chain", "there/new": b"dangling",
    }  # fmt: skip


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links") as caught:
        write(tmp_path / "a")
    assert caught.value.errno == errno.ELOOP


def test_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_device_is_written_to(graphc_command, model: Path) -> None:
    before = os.stat("/dev/null")
    done = graphc_command("compile", model, "-o", "/dev/null")
    assert done.status == 0, done.err
    after = os.stat("/dev/null")
    assert stat.S_ISCHR(after.st_mode)
    assert (after.st_ino, after.st_rdev) == (before.st_ino, before.st_rdev)
    assert not [each for each in os.listdir("/dev") if each.startswith(files.BESIDE)]


def test_a_full_device_is_an_error(graphc_command, model: Path) -> None:
    done = graphc_command("compile", model, "-o", "/dev/full")
    assert done.status == 1
    assert done.err == "error: /dev/full: no space left on device\n"


def test_outputs_need_a_folder_or_an_archive(graphc_command, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.commands.run.open_model", lambda *given: pytest.fail("run in vain"))
    for target in ("/dev/null", "m.onnx"):
        done = graphc_command("run", model, "--random", "0", "-o", target)
        assert (done.status, done.err) == (1, f"error: {target}: is not a folder; an archive ends with .npz\n")


def test_a_pipe_gets_the_bytes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    content = bytes(range(256)) * 1000
    while reader.is_alive():
        try:
            write(tmp_path / "pipe", content)
            break
        except OSError as error:
            assert error.errno == errno.ENXIO, "until somebody reads"  # noqa: PT017
    reader.join()
    assert found == [content]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_pipe_that_nobody_reads_is_not_waited_for(graphc_command, model: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = graphc_command("compile", model, "-o", "pipe")
    assert (done.status, done.err) == (1, "error: pipe: nobody reads from this pipe\n")
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "pipe"]


PIPES = {
    "a model": ["inspect", "pipe"],
    "a model to run": ["run", "pipe", "--random", "0"],
    "weights": ["run", "m.onnx", "--random", "0", "--weights", "pipe"],
    "an index": ["run", "m.onnx", "--random", "0", "--weights", "pipe.index.json"],
    "a lora": ["run", "m.onnx", "--random", "0", "--lora", "pipe"],
    "an input": ["run", "m.onnx", "--input", "x=pipe"],
    "inputs": ["run", "m.onnx", "--inputs", "pipe"],
    "a checkpoint": ["inspect", "pipe.safetensors"],
    "an engine": ["refit", "pipe", "m.onnx", "-o", "new.gguf"],
}


@pytest.mark.parametrize("arguments", PIPES.values(), ids=PIPES)
def test_a_pipe_is_not_waited_for(graphc_command, model: Path, tmp_path: Path, arguments: list[str]) -> None:
    for name in ("pipe", "pipe.safetensors", "pipe.index.json"):
        os.mkfifo(tmp_path / name)
    done = graphc_command(*arguments)
    assert done.status == 1
    assert done.err.startswith("error: ")
    assert "regular file" in done.err


def test_what_is_read_must_be_a_file(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "is a directory"), (Path("/dev/zero"), "not a regular file")):
        for read in (open_regular, map_file, lambda each: read_file(each, 100)):
            with pytest.raises(OSError, match=said):
                read(path)
    (tmp_path / "file").write_bytes(b"12345")
    assert read_file(tmp_path / "file", 5) == map_file(tmp_path / "file").tobytes() == b"12345"
    with pytest.raises(OSError, match="longer than 4 bytes"):
        read_file(tmp_path / "file", 4)


def test_what_can_never_be_written_is_said_before(tmp_path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as listening:
        before = os.getcwd()
        os.chdir(tmp_path)  # the name of a socket must be short
        listening.bind("socket")
        os.chdir(before)
        for path, said in (
            (tmp_path, "is a directory"),
            (tmp_path / "socket", "neither a file"),
            (tmp_path / "no" / "x", "no such"),
        ):
            with pytest.raises(OSError, match=said):
                check_target(path)
    with pytest.raises(NotADirectoryError):
        check_folder("/dev/null")


# Folders


def test_a_strangers_folder_is_refused(graphc_command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "CMakeLists.txt").write_text("project(theirs)")
    before = everything(tmp_path)
    done = graphc_command("compile", model, "--cpp", "theirs")
    assert done.status == 1
    assert done.err == "error: theirs: graphc did not write what lies in it; give a new folder\n"
    assert everything(tmp_path) == before, "and no engine is written"


def test_a_strangers_file_in_a_project_is_not_replaced(tmp_path: Path) -> None:
    project = write_project(PROGRAMS["flat"](), tmp_path / "project")
    (project / "kernels.c").write_text("theirs")
    before = everything(project)
    with pytest.raises(FileExistsError, match=r"graphc did not write this file.*kernels\.c"):
        write_project(PROGRAMS["kernels"](), project)
    assert everything(project) == before


def test_files_that_a_project_no_longer_has_go(tmp_path: Path) -> None:
    project = write_project(PROGRAMS["kernels"](), tmp_path / "project")
    (project / "mine.txt").write_text("mine")
    (project / "build").mkdir()
    assert (project / "kernels.c").is_file()
    write_project(PROGRAMS["flat"](), project)
    assert not (project / "kernels.c").exists()
    assert (project / "mine.txt").read_text() == "mine"
    assert (project / "build").is_dir()
    fresh = write_project(PROGRAMS["flat"](), tmp_path / "fresh")
    assert everything(project) == {**everything(fresh), "mine.txt": b"mine"}


@pytest.mark.parametrize("there", ["nothing", "an empty folder", "a link", "a project"])
@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_nothing_is_left_of_a_project_that_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, failure: BaseException
) -> None:
    project = tmp_path / "project"
    if there == "an empty folder":
        project.mkdir()
    elif there == "a link":
        (tmp_path / "elsewhere").mkdir()
        project.symlink_to("elsewhere")
    elif there == "a project":
        write_project(PROGRAMS["kernels"](), project)
    before = everything(tmp_path)
    write_bytes, written = Path.write_bytes, []

    def full(path: Path, content: bytes) -> int:
        written.append(path)
        if len(written) == 7:
            raise failure
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(type(failure)):
        write_project(PROGRAMS["flat"](), project)
    monkeypatch.undo()
    assert everything(tmp_path) == before
    assert project.exists() == (there != "nothing")
    write_project(PROGRAMS["flat"](), project)
    assert "model.cpp" in everything(project.resolve())
    assert project.is_symlink() == (there == "a link")


@pytest.mark.parametrize("name", ["../stolen", "/stolen", "sub/../../stolen"])
def test_a_list_with_other_paths_removes_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "stolen").write_text("kept")
    name = str(tmp_path / "stolen") if name.startswith("/") else name
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / LIST).write_text(f"{files.LIST_BEGINS}\n{name}\n")
    with replacing_folder(tmp_path / "project") as folder:
        (folder / "file").write_text("x")
    assert (tmp_path / "stolen").read_text() == "kept"


# Signals

SENDS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN if sys.argv[2] == "ignored" else signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[2] == "ignored" else signal.SIG_DFL)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
import numpy as np
from graphc import cli, compiler
array = compiler.weight_array
def sent(program, index):
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    return array(program, index)
compiler.weight_array = sent
cli.main(sys.argv[3:])
"""


@pytest.mark.parametrize(
    ("name", "others", "status"),
    [
        ("SIGINT", "heard", (130, -signal.SIGINT)),
        ("SIGTERM", "heard", (143,)),
        ("SIGHUP", "heard", (129,)),
        ("SIGTERM", "ignored", (143,)),
        ("SIGINT", "ignored", (0,)),
        ("SIGHUP", "ignored", (0,)),
    ],
)
def test_a_signal_leaves_nothing_behind(tmp_path: Path, name: str, others: str, status: tuple[int, ...]) -> None:
    """Also of a job of `nohup`, or in a shell's background, where signals of the terminal are ignored."""
    path = stored(dense_model(), tmp_path / "m.onnx")
    command = [sys.executable, "-c", SENDS, name, others, "compile", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in status, done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(os.listdir(tmp_path)) == (["m.gguf", "m.onnx"] if status == (0,) else ["m.onnx"])


def test_what_a_build_started_ends_with_it(tmp_path: Path) -> None:
    script = f"import subprocess, sys; subprocess.run(['sh', '-c', 'echo $$; sleep 60; touch {tmp_path / 'late'}'])"

    class Stop(BaseException):
        pass

    seen: list[int] = []
    lines = cmake._lines([sys.executable, "-c", script])
    seen.append(int(next(lines)))
    with pytest.raises(Stop):
        lines.throw(Stop())
    for _ in range(1000):
        state = Path(f"/proc/{seen[0]}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        threading.Event().wait(0.01)
    else:
        pytest.fail("it still runs")
    with pytest.raises(BuildError):
        cmake.run([sys.executable, "-c", "raise SystemExit(3)"], "it failed")
