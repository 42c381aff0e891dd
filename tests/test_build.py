import hashlib
import io
import subprocess
import sys
import tarfile

import pytest
from cpp_programs import PROGRAMS
from suite.quick_cpp import OPTIONS

from graphc import build as building
from graphc import cmake, ggml_source
from graphc.backends.table import BACKENDS
from graphc.build import build
from graphc.errors import BuildError
from graphc.targets.ggml.cpp import write_project


def archive(path, entries):
    """A tar.gz of (name, content or TarInfo fields) entries; returns its hash."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = content
                tar.addfile(info)
    return hashlib.sha256(path.read_bytes()).hexdigest()


INSIDE = f"ggml_python-{ggml_source.VERSION}/vendor/ggml"
GOOD = [(f"{INSIDE}/CMakeLists.txt", b"project(ggml)"), (f"{INSIDE}/src/ggml.c", b"int x;"), ("other/file", b"no")]


def test_the_source_is_unpacked_without_what_is_beside_it(tmp_path):
    digest = archive(tmp_path / "a.tar.gz", GOOD)
    ggml_source.unpack(tmp_path / "a.tar.gz", tmp_path / "out", digest)
    found = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert found == ["CMakeLists.txt", "src/ggml.c"]


@pytest.mark.parametrize(
    "entry",
    [
        (f"{INSIDE}/../../../../escaped", b"x"),
        ("/tmp/escaped", b"x"),
        (f"{INSIDE}\\..\\escaped", b"x"),
        ("c:/escaped", b"x"),
    ],
)
def test_an_archive_that_leads_out_of_its_folder_is_refused(tmp_path, entry):
    digest = archive(tmp_path / "a.tar.gz", [entry, *GOOD])
    with pytest.raises(BuildError, match="leads out of it"):
        ggml_source.unpack(tmp_path / "a.tar.gz", tmp_path / "out", digest)
    assert not list(tmp_path.rglob("escaped*"))


def test_links_are_not_unpacked(tmp_path):
    link = (f"{INSIDE}/src", (tarfile.SYMTYPE, str(tmp_path / "elsewhere")))
    (tmp_path / "elsewhere").mkdir()
    digest = archive(tmp_path / "a.tar.gz", [link, *GOOD])
    ggml_source.unpack(tmp_path / "a.tar.gz", tmp_path / "out", digest)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_archive_of_another_hash_is_refused(tmp_path):
    archive(tmp_path / "a.tar.gz", GOOD)
    with pytest.raises(BuildError, match="is not the file that this version of graphc knows"):
        ggml_source.unpack(tmp_path / "a.tar.gz", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_truncated_or_foreign_archive_is_refused(tmp_path):
    path = tmp_path / "a.tar.gz"
    archive(path, GOOD)
    path.write_bytes(path.read_bytes()[:60])
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(BuildError, match="could not be unpacked"):
        ggml_source.unpack(path, tmp_path / "out", digest)
    digest = archive(path, [("other/file", b"no")])
    with pytest.raises(BuildError, match="does not hold ggml's source"):
        ggml_source.unpack(path, tmp_path / "out2", digest)


def test_pip_is_asked_for_one_file_by_its_hash(tmp_path, monkeypatch):
    seen = {}

    def run(command, **settings):
        seen["command"], seen["requirement"] = command, (tmp_path / "requirement.txt").read_text()
        return subprocess.CompletedProcess(command, 1, "", "ERROR: no network")

    monkeypatch.setattr(ggml_source.subprocess, "run", run)
    with pytest.raises(BuildError, match="no network"):
        ggml_source.download(tmp_path)
    assert {"--require-hashes", "--no-deps"} <= set(seen["command"])
    assert seen["requirement"] == f"ggml-python=={ggml_source.VERSION} --hash=sha256:{ggml_source.SHA256}\n"


def test_the_source_is_fetched_once(tmp_path, monkeypatch):
    calls = []

    def download(folder):
        calls.append(folder)
        monkeypatch.setattr(ggml_source, "unpack", lambda path, target: unpack(path, target, digest))
        digest = archive(folder / "a.tar.gz", GOOD)
        return folder / "a.tar.gz"

    unpack = ggml_source.unpack
    for name in ("cache_folder", "make_cache_folder"):
        monkeypatch.setattr(ggml_source, name, lambda name: tmp_path)
    monkeypatch.setattr(ggml_source, "download", download)
    first = ggml_source.ggml_source()
    assert (first / "CMakeLists.txt").is_file()
    assert ggml_source.ggml_source() == first
    assert len(calls) == 1
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


def test_a_folder_that_is_no_project_is_refused(tmp_path):
    with pytest.raises(BuildError, match="is not a C\\+\\+ project of graphc"):
        build(tmp_path)


def test_an_unknown_backend_is_refused(tmp_path):
    write_project(PROGRAMS["flat"](), tmp_path)
    with pytest.raises(BuildError, match="no backend 'abacus'; there is blas, "):
        build(tmp_path, backend="abacus")


def test_a_backend_is_built_from_the_source(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "ggml_source", lambda progress: tmp_path)
    options = building.backend_options("Vulkan")
    assert options == [f"-DGGML_SOURCE_DIR={tmp_path}", "-DGGML_LLAMAFILE=ON", "-DGGML_NATIVE=ON", "-DGGML_VULKAN=ON"]
    assert set(BACKENDS) >= {"cuda", "vulkan", "metal", "hip", "sycl", "opencl"}


def test_without_cmake_the_message_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(cmake.shutil, "which", lambda name: None)
    monkeypatch.setattr(cmake.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(BuildError, match="pip install cmake"):
        cmake.find_cmake()


def test_a_failure_shows_the_end_of_the_output(tmp_path):
    script = "import sys; [print('line', i) for i in range(100)]; print('[ 50%] x'); sys.exit(3)"
    steps = []
    with pytest.raises(BuildError, match="it failed:") as error:
        cmake.run([sys.executable, "-c", script], "it failed", steps.append)
    assert "line 99" in str(error.value)
    assert "line 10\n" not in str(error.value)
    assert steps == [50]
    with pytest.raises(BuildError, match=r"it failed: .*absent"):
        cmake.run([str(tmp_path / "absent")], "it failed")


@pytest.mark.slow
def test_code_that_does_not_compile_is_a_build_error(tmp_path):
    write_project(PROGRAMS["flat"](), tmp_path)
    (tmp_path / "runtime" / "graphc" / "arguments.cpp").write_text("#error this is not C++\n")  # what is compiled first
    with pytest.raises(BuildError, match=r"(?s)could not be compiled:.*this is not C\+\+"):
        build(tmp_path, cmake_args=OPTIONS, jobs=1)


@pytest.mark.slow
def test_a_backend_that_the_installed_ggml_lacks_is_an_error(tmp_path):
    write_project(PROGRAMS["flat"](), tmp_path)
    with pytest.raises(BuildError, match="was built without CUDA"):
        build(tmp_path, cmake_args=["-DGGML_CUDA=ON"])


def test_what_takes_minutes_says_so_without_a_terminal(capsys, monkeypatch):
    from graphc import trace

    times = iter([0, 5, 21, 22, 50])
    monkeypatch.setattr(trace, "perf_counter", lambda: next(times))
    with trace.Lines().stage("compile", 100) as step:
        for _ in range(3):
            step(10)
    assert capsys.readouterr().err == "compile …\ncompile: 20 % after 21 s\n"
