"""Programs that bring their engines with them: what they answer where there is nothing else, and what they say of damage."""

import os
import platform
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from built_once import built_once
from suite.quick_cpp import BUNDLED

import graphc
from graphc import bundle as bundling
from graphc.bundle import ALIGNMENT, MARK, bundle
from graphc.commands.bundle import named
from graphc.errors import BuildError, EngineError, GraphcError, InputError
from graphc.files import replacing_folder
from graphc.zig import find_zig

WINE = shutil.which("wine64") or shutil.which("wine64", path="/usr/lib/wine")
QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")

RUNNERS = {"x86_64-linux": [], "aarch64-linux": [QEMU], "x86_64-windows": [WINE]}
"""What runs the programs of a target here, before the program's own name; None where it is not installed."""

SYSTEM = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
"""Libraries that every Linux with glibc has."""

needs_compiler = pytest.mark.skipif(
    not shutil.which("cmake") or not shutil.which("c++") or platform.system() != "Linux", reason="needs cmake and c++"
)
needs_zig = pytest.mark.skipif(find_zig() is None, reason="needs ziglang")


def rows():
    """Products, a generated kernel and a routine, for any number of rows."""
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    rows (float[n, 24] x) => (float[n, 40] y) {
        h = MatMul(x, w)
        a = Relu(h)
        seven = Constant<value = float {0.7}>()
        m = Mod<fmod = 1>(a, seven)
        axis = Constant<value = int64 {1}>()
        y = CumSum(m, axis)
    }""")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal((24, 40)).astype(np.float32), "w"))
    return proto


def pair():
    """Two inputs and two outputs, of which one is called as a device of Windows."""
    return onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    pair (float[2, 3] a, int64[4] b) => (float[2, 3] sum, int64[4] aux) {
        sum = Add(a, a)
        aux = Add(b, b)
    }""")


def given():
    rng = np.random.default_rng(1)
    return {
        "x": rng.standard_normal((5, 24)).astype(np.float32),
        "a": rng.standard_normal((2, 3)).astype(np.float32),
        "b": np.arange(4) - 2,
    }


@pytest.fixture(scope="module", autouse=True)
def _compiled_quickly():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundling, "OPTIONS", BUNDLED)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The models as files, one as an engine, and inputs for them."""

    def build(folder):
        onnx.save(rows(), folder / "rows.onnx")
        graphc.compile(pair(), folder / "pair.gguf").close()
        for name, array in given().items():
            np.save(folder / f"{name}.npy", array)

    return built_once(tmp_path_factory, "models ü", build)


@pytest.fixture(scope="module")
def program(folder, tmp_path_factory):
    """A program with both, for this system."""
    models = {"rows": folder / "rows.onnx", "pair": folder / "pair.gguf"}
    made = built_once(tmp_path_factory, "bundled ü", lambda made: bundle(models, made / "app"))
    return next(made.iterdir())


def run(program, *words, before=()):
    """Run a program in its folder, with nothing in its environment: its status and what it printed."""
    done = subprocess.run(
        [*map(str, before), str(program), *map(str, words)],
        cwd=program.parent,
        env={"WINEPREFIX": str(program.parent / "wine"), "WINEDEBUG": "-all"} if before else {},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=300,
        check=False,
    )
    said = [
        line for line in done.stderr.splitlines(keepends=True) if not line.startswith("wine: ")
    ]  # of its new folder
    return done.returncode, done.stdout, "".join(said)


@pytest.fixture
def alone(program, folder, tmp_path):
    """The program in a folder with the inputs and nothing else."""
    for path in (program, *folder.glob("*.npy")):
        shutil.copy(path, tmp_path)
    return tmp_path / program.name


def expected(name):
    model = graphc.compile({"rows": rows, "pair": pair}[name](), threads=2)
    return model.run({each.name: given()[each.name] for each in model.inputs})


def said(done):
    """The one line of an error."""
    status, out, err = done
    assert status == 1
    assert err.startswith("error: ")
    assert "scores" not in out
    (line,) = err.splitlines()
    return line


@needs_compiler
@pytest.mark.slow
def test_a_program_answers_as_the_models_do_where_there_is_nothing_else(alone):
    (alone.parent / "empty").mkdir()
    status, out, err = run(alone, "rows", "x.npy", "-o", "y.npy", "-o", "all.npz", "--threads", 2)
    assert (status, err) == (0, "")
    assert "y: float32[5, 40]" in out
    (y,) = expected("rows").values()
    assert np.load(alone.parent / "y.npy").tobytes() == y.tobytes()
    with np.load(alone.parent / "all.npz") as archive:
        assert {name: archive[name].tobytes() for name in archive.files} == {"y": y.tobytes()}
    assert run(alone, "pair", "--input", "b=b.npy", "a.npy", "-o", "both.npz", "-o", "folder")[0] == 0
    wanted = expected("pair")
    with np.load(alone.parent / "both.npz") as archive:
        found = {name: archive[name] for name in archive.files}
    assert found.keys() == {"sum", "_aux"}
    for name, array in found.items():
        assert array.dtype == wanted[name.strip("_")].dtype
        assert array.tobytes() == wanted[name.strip("_")].tobytes()
        assert np.load(alone.parent / "folder" / f"{name}.npy").tobytes() == array.tobytes()


@needs_compiler
@pytest.mark.slow
def test_a_program_needs_no_library_but_the_systems(program):
    listed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    needed = {line.split("[")[1].rstrip("]") for line in listed.splitlines() if "(NEEDED)" in line}
    assert "libc.so.6" in needed
    assert needed <= SYSTEM
    content = program.read_bytes()
    assert str(Path.home()).encode() not in content
    assert str(bundling.make_cache_folder("ggml")).encode() not in content


@needs_compiler
@pytest.mark.slow
def test_a_program_says_what_it_is(alone):
    status, out, _ = run(alone, "--help")
    assert status == 0
    assert out.startswith(f"usage: {alone} MODEL [FILE.npy ...] [options]\n")
    for line in (
        "rows",
        "  x: float32[n, 24]",
        "  y: float32[n, 40]",
        "  n: from 1",
        "  b: int64[4]",
        "  aux: int64[4]",
    ):
        assert line in out.splitlines()
    status, out, _ = run(alone, "pair", "--help")
    assert status == 0
    assert "  b: int64[4]" in out.splitlines()
    assert "  x: float32[n, 24]" not in out.splitlines()
    assert run(alone, "--verify") == (0, "rows: as it was written\npair: as it was written\n", "")


@needs_compiler
@pytest.mark.slow
def test_free_sizes_are_those_of_the_arrays_or_asked_for(alone):
    for count in (1, 7, 64):
        x = np.random.default_rng(count).standard_normal((count, 24)).astype(np.float32)
        np.save(alone.parent / "x.npy", x)
        assert run(alone, "rows", "x.npy", "--output", "y.npy", "--threads", 3)[0] == 0
        assert np.load(alone.parent / "y.npy").tobytes() == graphc.compile(rows(), threads=1).run(x=x)["y"].tobytes()
    for _ in range(2):
        assert "y: float32[9, 40]" in run(alone, "rows", "--random", 4, "--dim", "n=9")[1]
    assert said(run(alone, "rows", "--random", 4)) == "error: random inputs need --dim n=SIZE"


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say which model, with the first word: rows, pair; --help describes them"),
        (["other"], "there is no model 'other'; there is rows, pair"),
        (["rows", "absent.npy"], "absent.npy cannot be opened"),
        (["rows", "app"], "app is not a .npy file"),
        (["rows", "."], ". is a folder"),
        (["rows", "x.npy", "a.npy"], "'a.npy' is one file too many: the model has no more inputs"),
        (
            ["pair", "--random", "0", "-o", "y.npy"],
            "takes one output, and the model has 2; write a folder or a .npz file",
        ),
        (["pair", "--random", "0", "-o", "absent/y.npz"], "absent/y.npz cannot be written"),
        (["pair", "--random", "0", "-o", "/dev/full"], "/dev/full is not a folder, and none can be made there"),
        (["rows", "x.npy", "--frobnicate"], "unknown option '--frobnicate'; --help lists them"),
        (["rows", "x.npy", "--engine", "app"], "app is not a GGUF file"),
    ],
)
def test_a_wrong_command_line_is_one_message(alone, words, message):
    before = sorted(path.name for path in alone.parent.iterdir())
    assert message in said(run(alone, *words))
    assert sorted(path.name for path in alone.parent.iterdir()) == before


@needs_compiler
@pytest.mark.slow
def test_arrays_that_do_not_fit_are_refused(alone):
    for name, array, message in (
        ("x", np.zeros((5, 23), np.float32), "x: axis 1 has size 23, must be 24 (the shape is [n, 24])"),
        ("x", np.zeros((5, 24)), "x: dtype float64, must be float32"),
        ("x", np.zeros(24, np.float32), "x: 1 axes [24], must be 2 [n, 24]"),
    ):
        np.save(alone.parent / f"{name}.npy", array)
        status, _, err = run(alone, "rows", f"{name}.npy", "-o", "y.npy")
        assert (status, err) == (1, f"error: the inputs do not fit the model:\n  {message}\n")
        assert not (alone.parent / "y.npy").exists()


@needs_compiler
@pytest.mark.slow
def test_damage_is_one_message(alone):
    whole = alone.read_bytes()
    start = struct.unpack("<Q", whole[-8:])[0]
    assert start % ALIGNMENT == 0
    assert whole[start : start + 4] == b"GGUF"
    last = whole.rindex(b"GGUF", 0, len(whole) - len(MARK))
    assert last % ALIGNMENT == 0

    def damaged(content, *words):
        alone.write_bytes(content)
        return said(run(alone, *words or ("pair", "a.npy", "b.npy")))

    behind = f"error: {alone} is damaged: the engines behind the program are missing, or their end is"
    for kept in (len(whole) - 1, len(whole) - 8, len(whole) - 24, last + 100, start + 1):
        assert damaged(whole[:kept]) == behind
    for place in (0, start - ALIGNMENT, start + ALIGNMENT, 1 << 40, (1 << 64) - ALIGNMENT):
        assert f"error: {alone}" in damaged(whole[:-8] + struct.pack("<Q", place))
    assert "does not say where its engines begin" in damaged(whole[:-8] + struct.pack("<Q", start + 1))
    footer = MARK + struct.pack("<Q", start)
    assert damaged(whole[: last + 200] + footer) == (
        f"error: {alone} is damaged: the engine 'pair' behind the program is not whole"
    )
    broken = bytearray(whole)
    broken[last] ^= 1
    assert damaged(broken) == f"error: {alone}: the engine 'pair' is not a GGUF file"
    checksum = whole.index(b"graphc.program.sha256", last) + 21 + 12
    broken = bytearray(whole)
    broken[checksum] ^= 1
    assert "is the engine of another program" in damaged(broken)
    weight = last - ALIGNMENT  # the last numbers of the first engine lie before what fills its place
    while not whole[weight : weight + 4].strip(b"\0"):
        weight -= 1
    broken = bytearray(whole)
    broken[whole.index(whole[weight : weight + 4], start)] ^= 1
    assert damaged(broken, "rows", "--verify") == (
        f"error: {alone} is damaged: the engine 'rows' has another checksum than when it was written"
    )
    for length in (1, 1000, ALIGNMENT):
        alone.write_bytes(whole + bytes(length))  # as a signature
        assert run(alone, "pair", "a.npy", "b.npy")[0] == 0


@needs_compiler
@pytest.mark.slow
def test_the_same_models_give_the_same_bytes(program, folder, tmp_path):
    models = {"rows": folder / "rows.onnx", "pair": folder / "pair.gguf"}
    again = bundle({"other": folder / "rows.onnx"}, tmp_path / "between")
    again = bundle(models, tmp_path / "again")
    assert again.read_bytes() == program.read_bytes()
    assert os.access(again, os.X_OK)


@needs_compiler
@pytest.mark.slow
def test_a_folder_can_be_moved(folder, tmp_path):
    made = bundle({"rows": folder / "rows.onnx"}, tmp_path / "made", folder=True)
    moved = made.rename(tmp_path / "moved ü")
    assert {path.name for path in moved.iterdir()} == {"made", "rows.gguf", "made-by-graphc.txt"}
    shutil.copy(folder / "x.npy", moved)
    assert run(moved / "made", "x.npy", "-o", "y.npy", "--threads", 2)[0] == 0  # the only model need not be named
    assert np.load(moved / "y.npy").tobytes() == expected("rows")["y"].tobytes()
    assert run(moved / "made", "--verify") == (0, "rows: as it was written\n", "")
    content = bytearray((moved / "rows.gguf").read_bytes())
    content[-100] ^= 1
    (moved / "rows.gguf").write_bytes(content)
    assert "rows.gguf is damaged: the engine 'rows' has another checksum" in said(run(moved / "made", "--verify"))
    (moved / "rows.gguf").unlink()
    assert "rows.gguf cannot be opened" in said(run(moved / "made", "x.npy"))


@needs_zig
@pytest.mark.thorough
@pytest.mark.parametrize("target", RUNNERS)
def test_a_program_for_another_system(folder, tmp_path, target):
    if None in RUNNERS[target]:
        pytest.skip("nothing here runs it")
    models = {"rows": folder / "rows.onnx", "pair": folder / "pair.gguf"}
    program = bundle(models, tmp_path / "app", target=target)
    assert program.name == ("app.exe" if "windows" in target else "app")
    for path in folder.glob("*.npy"):
        shutil.copy(path, tmp_path)
    status, _, err = run(program, "rows", "x.npy", "-o", "y.npz", "--threads", 2, before=RUNNERS[target])
    assert (status, err) == (0, "")
    (y,) = expected("rows").values()
    with np.load(tmp_path / "y.npz") as archive:
        assert np.abs(archive["y"] - y).max() <= 4e-6 * np.abs(y).max()
    assert run(program, "--verify", before=RUNNERS[target])[0] == 0


@needs_zig
@pytest.mark.thorough
def test_a_folder_for_macos(folder, tmp_path):
    made = bundle({"rows": folder / "rows.onnx"}, tmp_path / "app", target="aarch64-macos", folder=True)
    assert (made / "app").read_bytes()[:4] == struct.pack("<I", 0xFEEDFACF)
    assert (made / "rows.gguf").is_file()


def test_what_cannot_be_made_is_refused_before_anything_is_built(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(bundling, "build", lambda *_, **__: pytest.fail("it was built"))
    models = {"rows": folder / "rows.onnx"}
    with pytest.raises(InputError, match="nothing may follow the signature: give --folder"):
        bundle(models, tmp_path / "app", target="aarch64-macos")
    with pytest.raises(BuildError, match="no target 'z80-cpm'"):
        bundle(models, tmp_path / "app", target="z80-cpm")
    monkeypatch.setitem(bundling.LARGEST, "Windows", bundling.PROGRAM)
    with pytest.raises(InputError, match="Windows starts no program of 4 GiB and more: give --folder"):
        bundle(models, tmp_path / "app", target="x86_64-windows")
    (tmp_path / "empty.gguf").write_bytes(b"GGUF")
    with pytest.raises(EngineError, match=r"empty\.gguf"):
        bundle({"empty": tmp_path / "empty.gguf"}, tmp_path / "app")
    with pytest.raises(GraphcError, match=r"absent\.onnx"):
        bundle({"absent": tmp_path / "absent.onnx"}, tmp_path / "app")
    with pytest.raises(InputError, match="would overwrite the model"):
        bundle({"empty": tmp_path / "empty.gguf"}, tmp_path / "empty.gguf")
    with pytest.raises(FileNotFoundError):
        bundle(models, tmp_path / "absent" / "app")
    with pytest.raises(InputError, match="a-b and a_b are both called ab_model in C"):
        bundle({"a-b": folder / "rows.onnx", "a_b": folder / "rows.onnx"}, tmp_path / "app")
    monkeypatch.setattr(bundling, "build", lambda *_, **__: folder / "model")
    with pytest.raises(InputError, match="would be called as an engine"):
        bundle(models, tmp_path / "rows.gguf", folder=True)
    assert [path.name for path in tmp_path.iterdir()] == ["empty.gguf"]


def test_models_are_called_as_their_files_or_as_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a=b.onnx").touch()
    found = named(["encoder/model.onnx", "decoder=decoder/model.onnx", "a=b.onnx"])
    assert {name: path.as_posix() for name, path in found.items()} == {
        "model": "encoder/model.onnx",
        "decoder": "decoder/model.onnx",
        "a=b": "a=b.onnx",
    }
    with pytest.raises(InputError, match="are both called model: give one another name"):
        named(["encoder/model.onnx", "decoder/model.onnx"])


def test_the_command_says_what_is_missing(graphc_command):
    done = graphc_command("bundle", "absent.onnx", "-o", "app")
    assert done.status == 1
    assert "absent.onnx" in done.err
    assert graphc_command("bundle", "-o", "app").status == 2


def test_files_that_are_the_same_are_not_written_again(tmp_path):
    for content in ("x", "x", "y"):
        before = (tmp_path / "out/file").stat() if (tmp_path / "out").exists() else None
        with replacing_folder(tmp_path / "out") as folder:
            (folder / "file").write_text(content)
            (folder / f"other {content}").write_text("")
        after = (tmp_path / "out/file").stat()
        assert before is None or (before.st_ino == after.st_ino) == (content == "x")
    assert (tmp_path / "out/file").read_text() == "y"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"file", "other y", "made-by-graphc.txt"}
