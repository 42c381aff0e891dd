"""The folders are rooms in an order: what is in one imports from those before it, and no files import each other in a circle.

What is imported for types alone does not count; what a function imports when it is called does.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = (
    "records",
    "errors forking once trace files cache zig ggml_declarations ggml_bindings ggml_library ggml_source cmake cross versions",
    "shapes",
    "ir ggml_types",
    "ops",
    "kernels",
    "rewrite passes optimize graph_text",
    "frontend.onnx frontend.exporting frontend",
    "backends hardware",
    "weights.formats",
    "targets.ggml.program",
    "targets.ggml.lowering",
    "targets.ggml.generate",
    "weights",
    "targets.ggml.run.device",
    "targets.ggml.run.memory targets.ggml.run.choose",
    "targets.ggml.run",
    "weights.embeddings weights.lora",
    "targets.ggml.engine",
    "targets.ggml.cpp",
    "runtime.model runtime.added runtime.lent runtime.turns runtime.arrays runtime.devices",
    "loading",
    "compiler build bundle debug",
    "runtime",
    "frontend.torch onnx_backend",
    "demo view",
    "commands cli __main__",
)
"""Rooms that may import from those in the lines before, and within a line from each other; the longest name that fits counts."""
PLACES = {room: number for number, line in enumerate(ROOMS) for room in line.split()}


def place_of(module: str) -> int | None:
    """The number of a module's line."""
    parts = module.split(".")[1:]
    found = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((PLACES[name] for name in found if name in PLACES), None)


def modules() -> dict[str, Path]:
    """Every module of the compiler by its name."""
    found = {}
    for path in sorted((ROOT / "graphc").rglob("*.py")):
        if "project" not in path.parts and path.read_text():
            found[".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules of the compiler that a file imports, except for types."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            names = (f"{node.module}.{each.name}" for each in node.names)
            yield from (name if name in MODULES else node.module for name in names)
        else:
            yield from imported(node)


def backwards(module: str, reads: set[str]) -> list[str]:
    """What a module imports from later rooms."""
    here = place_of(module)
    return [
        other for other in sorted(reads) if (there := place_of(other)) is not None and here is not None and there > here
    ]


READS = {module: set(imported(ast.parse(path.read_text()))) - {module, "graphc"} for module, path in MODULES.items()}


@pytest.mark.parametrize("module", [each for each in MODULES if each != "graphc"])
def test_imports_go_one_way(module):
    assert place_of(module) is not None, "a new folder needs its place in ROOMS"
    assert backwards(module, READS[module]) == []


def test_an_import_the_other_way_is_found():
    reads = set(imported(ast.parse("def f():\n    from graphc.runtime.model import Model")))
    assert backwards("graphc.ops.conv", reads) == ["graphc.runtime.model"]


def circle(reads: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle; none if there are none. Those that nothing is left to read are taken out."""
    left = {module: {other for other in others if other in reads} for module, others in reads.items()}
    while done := [module for module, others in left.items() if not others]:
        left = {module: others - set(done) for module, others in left.items() if module not in done}
    return sorted(left)


def test_no_files_import_each_other_in_a_circle():
    assert circle(READS) == []
    assert circle({"a": {"b"}, "b": {"a", "c"}, "c": set()}) == ["a", "b"]


OTHERS_NAMES = ("frontend", "weights/layouts")
"""Where files have names that others gave: of ONNX's operators, PyTorch's functions, published weights."""
SOURCES = (".py", ".c", ".h", ".cpp", ".hpp", ".cu")


def test_what_is_known_of_attention_stands_in_few_files():
    """The operator, its rules, its composite and what builds that, our own code with its headers (by vectors, by a matrix unit),
    and its kernels for GPUs (of registers, Hopper's, and of any instruction): what computes it or decides about it. All else
    treats it as any other operator or call."""
    folder = ROOT / "graphc"
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.suffix in SOURCES)
    ours = [path.as_posix() for path in files if not path.as_posix().startswith(OTHERS_NAMES)]
    named = [path for path in ours if "attention" in (folder / path).read_text().lower()]
    assert len(named) <= 12, named
    assert all(
        path.partition(".")[0].endswith(
            ("/attention", "/attention_tiles", "/attention_together", "/attention_anywhere")
        )
        for path in named
    )
