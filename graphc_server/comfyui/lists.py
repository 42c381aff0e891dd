"""What there is: nodes, models, the machine.

Source: ComfyUI's server.py.
"""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from graphc_server.answers import Json
from graphc_server.comfyui import nodes
from graphc_server.comfyui.library import FOLDERS, Library
from graphc_server.comfyui.routes import Made
from graphc_server.comfyui.table import NODES
from graphc_server.memory import memory_of_machine

router = APIRouter()
COMFYUI = "0.3.76"
"""The version of ComfyUI whose protocol this is: some clients look at it."""


@router.get("/object_info")
def all_nodes(graphs: Made) -> Response:
    """All nodes: what they take and give."""
    assert nodes.SUBJECTS
    told = (f'"{name}":{described(name, graphs.library)}' for name in NODES)
    return Response(f"{{{','.join(told)}}}", media_type="application/json")


FIXED: dict[str, str] = {}
"""Nodes that are always described the same, as JSON: clients ask for all of them while a picture is painted."""


def described(name: str, library: Library) -> str:
    """A node as JSON."""
    if name in FIXED:
        return FIXED[name]
    found = json.dumps(NODES[name].described(library), allow_nan=False)
    if NODES[name].fixed:
        FIXED[name] = found
    return found


@router.get("/object_info/{name}")
def one_node(graphs: Made, name: str) -> Json:
    """One node; nothing if there is none of this name."""
    return Json({name: NODES[name].described(graphs.library)} if name in NODES else {})


@router.get("/embeddings")
def embeddings(graphs: Made) -> Json:
    """Names of embeddings, without endings."""
    return Json([name.rpartition(".")[0] for name in graphs.library.names("embeddings")])


@router.get("/models")
def folders() -> Json:
    """The kinds of models."""
    return Json(list(FOLDERS))


@router.get("/models/{folder}")
def models(graphs: Made, folder: str) -> Response:
    """The files of a kind."""
    return Json(graphs.library.names(folder)) if folder in FOLDERS else Response(status_code=404)


@router.get("/extensions")
def extensions() -> Json:
    """Scripts that ComfyUI's page would load: none."""
    return Json([])


@router.get("/system_stats")
def system_stats(graphs: Made) -> Json:
    """The machine, and what computes."""
    total, free = memory_of_machine()
    device = graphs.service.setup.device
    system: dict[str, Any] = {
        "os": sys.platform,
        "ram_total": total,
        "ram_free": free,
        "comfyui_version": COMFYUI,
        "required_frontend_version": "",
        "installed_templates_version": "",
        "required_templates_version": "",
        "python_version": sys.version,
        "pytorch_version": f"graphc {version('graphc')}",
        "embedded_python": False,
        "argv": ["graphc", "serve"],
    }
    found = {
        "name": platform.processor() or platform.machine() if device == "cpu" else device,
        "type": "cpu" if device == "cpu" else "cuda",
        "index": None if device == "cpu" else 0,
        "vram_total": total,
        "vram_free": free,
        "torch_vram_total": total,
        "torch_vram_free": free,
    }
    return Json({"system": system, "devices": [found]})
