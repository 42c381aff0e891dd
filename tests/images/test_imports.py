"""graphc_images stands on graphc's public names, NumPy, pillow, typer and rich alone; nothing heavy comes with it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import graphc

PACKAGE = Path(__file__).parents[2] / "graphc_images"
FILES = sorted(PACKAGE.rglob("*.py"))
ALLOWED = {"numpy", "PIL", "typer", "rich", "graphc", "graphc_images", *sys.stdlib_module_names}


def strays(source):
    """What a file imports, or takes from graphc, that it should not."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            found += [name for name in names if name.partition(".")[0] not in ALLOWED or name.startswith("graphc.")]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level == 0 and (module.partition(".")[0] not in ALLOWED or module.startswith("graphc.")):
                found.append(module)
            elif module == "graphc" and node.level == 0:
                found += [f"graphc.{alias.name}" for alias in node.names if alias.name not in graphc.__all__]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "graphc":
            found += [f"graphc.{node.attr}"] if node.attr not in graphc.__all__ else []
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_are_public(path):
    assert strays(path.read_text()) == []


def test_what_is_not_public_is_found():
    source = "import torch, graphc.ir\nfrom graphc.weights import x\nfrom graphc import ops, load\ngraphc.compiler.y"
    assert strays(source) == ["torch", "graphc.ir", "graphc.weights", "graphc.ops", "graphc.compiler"]


def module_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def test_importing_everything_brings_no_torch():
    modules = [module_of(path) for path in FILES if path.stem != "__main__"]
    heavy = {"torch", "onnx", "scipy", "transformers", "safetensors", "diffusers"}
    code = (
        f"import sys\nfor name in {modules}: __import__(name)\nassert not {heavy} & set(sys.modules), set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr
