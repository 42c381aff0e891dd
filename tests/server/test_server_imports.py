"""graphc_server stands on graphc_images' and graphc's public names, FastAPI, Starlette, pydantic and uvicorn."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import graphc

PACKAGE = Path(__file__).parents[2] / "graphc_server"
FILES = sorted(PACKAGE.rglob("*.py"))
OTHERS = {"fastapi", "starlette", "pydantic", "dramatiq", "redis", "uvicorn", "typer", "PIL", "graphc_server"}
OF_IMAGES = {
    *("graphc_images", "graphc_images.describing", "graphc_images.folders", "graphc_images.hashes"),
    *("graphc_images.headers", "graphc_images.from_files", "graphc_images.commands.fast"),
    *("graphc_images.latent_scaling", "graphc_images.control_units", "graphc_images.detectors"),
    *("graphc_images.pictures.hints", "graphc_images.pictures.grids", "graphc_images.prompts.variations"),
    *("graphc_images.pictures.blending", "graphc_images.pictures.files", "graphc_images.pictures.parameters"),
    *("graphc_images.models", "graphc_images.pipeline", "graphc_images.prompts.extras", "graphc_images.upscalers"),
    *("graphc_images.prompts.styles", "graphc_images.sampling", "graphc_images.settings"),
    *("graphc_images.conditions", "graphc_images.inversions", "graphc_images.plots", "graphc_images.resolving"),
    *("graphc_images.pictures.grids", "graphc_images.pictures.outpaint", "graphc_images.sampling.guidance"),
    *(f"graphc_images.prompts.{name}" for name in ("chunks", "embeddings", "encoders", "plan")),
}


PARTS = PACKAGE / "comfyui"
"""Its nodes are the parts of graphc_images, one by one, whose values are arrays."""


def strays(source, parts=False):
    """What a file imports that it should not, or by a name that is its module's own; with `parts`, it may use all modules of
    graphc_images."""
    found = []

    def allowed(module):
        return known(module) or (parts and module.partition(".")[0] in ("numpy", "graphc_images"))

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if not allowed(alias.name)]
        elif isinstance(node, ast.ImportFrom):
            module, names = node.module or "", [alias.name for alias in node.names]
            found += [module] if not allowed(module) else []
            found += [f"{module}.{name}" for name in names if name.startswith("_")]
            found += [f"graphc.{name}" for name in names if module == "graphc" and name not in graphc.__all__]
    return found


def known(module):
    first = module.partition(".")[0]
    if first in ("graphc", "graphc_images"):
        return module == "graphc" or module in OF_IMAGES
    return first in OTHERS or first in sys.stdlib_module_names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_server_imports_public_names(path):
    assert strays(path.read_text(), path.is_relative_to(PARTS)) == []


def test_other_imports_are_found():
    source = "import torch\nfrom graphc.ir import x\nfrom graphc import ops\nfrom graphc_images.painting import paint"
    assert strays(source) == ["torch", "graphc.ir", "graphc.ops", "graphc_images.painting"]
    assert strays(source, parts=True) == ["torch", "graphc.ir", "graphc.ops"]


def test_the_command_line_is_there_without_a_server():
    code = "import sys, graphc_server.commands; assert not {'fastapi', 'uvicorn', 'pydantic'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=PACKAGE.parent)
    assert done.returncode == 0, done.stderr
