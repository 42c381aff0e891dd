"""That graphc runs on Windows, as far as can be seen from here: what only POSIX systems have is used where it is known to be."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from graphc.runtime.arrays import file_names

ROOT = Path(__file__).parents[1] / "graphc"

MODULES = {
    "crypt",
    "curses",
    "fcntl",
    "grp",
    "nis",
    "posix",
    "pty",
    "pwd",
    "readline",
    "resource",
    "syslog",
    "termios",
    "tty",
}
"""Modules that Windows lacks."""

NAMES = {
    "os": {"fork", "forkpty", "getegid", "geteuid", "getgid", "getloadavg", "getpgid", "getuid", "kill", "killpg", "mkfifo",
           "nice", "sched_getaffinity", "sched_setaffinity", "setpgid", "setsid", "statvfs", "sysconf", "uname", "wait"},
    "signal": {"SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGUSR1", "alarm", "pause", "sigwait"},
    "socket": {"AF_UNIX"},
}  # fmt: skip
"""What other modules lack there, or what means something else."""

PYTHONS = {"uname", "kill", "getuid", "geteuid", "sysconf"}
"""Those of them that Python's own modules use here."""

OPENERS = {"Image", "tarfile", "zipfile", "archive", "os", "self"}
"""Whose `open` opens something else than a text file."""


def nodes(tree, guarded=False):
    """Every node, and whether it stands under a condition or where a failure is caught."""
    for node in ast.iter_child_nodes(tree):
        inside = guarded or isinstance(tree, ast.If | ast.IfExp | ast.BoolOp | ast.Try)
        yield node, inside
        yield from nodes(node, inside)


def lacks_encoding(call):
    """True if a call opens a text file in an encoding that the system chooses."""
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if any(each.arg in ("encoding", None) for each in call.keywords):
        return False
    if name in ("read_text", "write_text"):
        of = getattr(call.func, "value", None)
        return of is not None and len(call.args) <= (name == "write_text")
    if name != "open" or getattr(getattr(call.func, "value", None), "id", "") in OPENERS:
        return False
    modes = [*call.args, *(each.value for each in call.keywords if each.arg == "mode")]
    return not any(isinstance(mode, ast.Constant) and "b" in str(mode.value) for mode in modes)


def problems(text):
    """What of a file's text would not work, or not alike, on Windows: line numbers and words."""
    for node, guarded in nodes(ast.parse(text)):
        if isinstance(node, ast.Call) and lacks_encoding(node):
            yield node.lineno, "a text file without an encoding"
        if guarded:
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            yield from ((node.lineno, f"the module {name}") for name in names if name in MODULES)
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.attr in NAMES.get(node.value.id, ())
        ):
            yield node.lineno, f"{node.value.id}.{node.attr}"


def test_the_check_finds_what_it_looks_for():
    text = """
import os, fcntl
from resource import getrusage
open("a")
open("a", "w")
path.open()
path.read_text(errors="replace")
path.write_text("x")
os.sched_getaffinity(0)
signal.SIGKILL
"""
    assert sorted(line for line, _ in problems(text)) == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    fine = """
if sys.platform == "linux":
    import resource
    os.fork()
open("a", "rb")
path.open(mode="wb")
path.open(encoding="utf-8")
path.write_text("x", encoding="utf-8")
read_text(program)
Image.open(data)
"""
    assert list(problems(fine)) == []


def test_nothing_needs_posix():
    files = sorted(ROOT.rglob("*.py"))
    found = {path.relative_to(ROOT).as_posix(): list(problems(path.read_text(encoding="utf-8"))) for path in files}
    assert len(found) > 100
    assert {path: each for path, each in found.items() if each} == {}


def test_no_file_is_named_as_a_device():
    names = ("aux", "CON.1", "nul", "lpt1", "auxiliary", "x.aux", "com")
    assert [*file_names(names).values()] == ["_aux", "_CON.1", "_nul", "_lpt1", "auxiliary", "x.aux", "com"]


WITHOUT_POSIX = """
import os, signal, sys
import ggml, numpy, onnx, onnx_ir, gguf, typer, rich.console, onnx.backend.base, onnx.version_converter
for module, names in NAMES.items():
    for name in names:
        if module in sys.modules and hasattr(sys.modules[module], name):
            delattr(sys.modules[module], name)
sys.modules |= dict.fromkeys(MODULES)

import graphc, pkgutil
skipped = ("graphc.demo",)
for each in pkgutil.walk_packages(graphc.__path__, "graphc."):
    if not each.name.startswith(skipped):
        __import__(each.name)
text = '<ir_version: 10, opset_import: ["": 21]> m (float[n, 9] x) => (float[n, 9] y) { z = Erf(x) y = MatMul(z, w) }'
proto = onnx.parser.parse_model(text)
proto.graph.initializer.append(onnx.numpy_helper.from_array(numpy.eye(9, dtype=numpy.float32), "w"))
folder = sys.argv[1]
model = graphc.compile(proto)
model.save(folder + "/m.gguf")
x = numpy.zeros((2, 9), numpy.float32)
assert not graphc.load(folder + "/m.gguf").run({"x": x})["y"].any()
from graphc.targets.ggml.cpp import write_project
write_project(model.program, folder + "/cpp")
"""


@pytest.mark.slow
def test_it_runs_without_what_windows_lacks(tmp_path):
    gone = {module: names - PYTHONS for module, names in NAMES.items()}
    script = f"NAMES, MODULES = {gone!r}, {MODULES!r}\n{WITHOUT_POSIX}"
    command = [
        sys.executable,
        "-X",
        "warn_default_encoding",
        "-W",
        "error::EncodingWarning:graphc",
        "-c",
        script,
        tmp_path,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cpp" / "model.cpp").is_file()
