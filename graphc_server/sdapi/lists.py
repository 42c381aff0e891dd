"""The routes that say what there is, and that choose among it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool

from graphc_images import ModelError
from graphc_images.headers import header_of
from graphc_images.latent_scaling import LATENT_UPSCALERS
from graphc_images.sampling import SAMPLERS, SCHEDULERS
from graphc_server.answers import Json
from graphc_server.errors import RequestError
from graphc_server.memory import memory_of_machine, memory_of_process
from graphc_server.sdapi import series
from graphc_server.sdapi.options import checked
from graphc_server.sdapi.painting import Served
from graphc_server.sdapi.requests import NO_VAE, check_text, options_of, styles_of
from graphc_server.sdapi.scripts import ARGUMENTS, SCRIPTS
from graphc_server.service import Service

router = APIRouter(prefix="/sdapi/v1")


@router.get("/options")
def options(service: Served) -> Json:
    """All options."""
    return Json(options_of(service))


@router.post("/options")
async def set_options(service: Served, request: Request) -> Json:
    """Some options. A model that is named is the one for requests from now on."""
    values = await _object(request)

    def keep() -> None:
        check_text(values)
        found = checked(values)
        if found.get("sd_model_checkpoint"):
            try:
                listed = service.models.find(str(found["sd_model_checkpoint"]))
            except ModelError as problem:
                raise RequestError(f"sd_model_checkpoint: {problem}", 404) from None
            found["sd_model_checkpoint"] = f"{listed.file.name}{listed.file.path.suffix}"
        vaes = {name for each in service.models.files("vae") for name in (each.name, each.path.name)}
        if found.get("sd_vae") not in (*NO_VAE, *vaes):
            raise RequestError(f"sd_vae: there is no autoencoder {str(found['sd_vae'])[:60]!r}", 404)
        service.store.set_options(found)

    await run_in_threadpool(keep)
    return Json(None)


async def _object(request: Request) -> dict[str, Any]:
    try:
        found = await request.json()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RequestError("the body is not a JSON object of options")
    return found


@router.get("/samplers")
async def samplers() -> Json:
    """The samplers, by A1111's names."""
    labelled = {each.label: each for each in SAMPLERS if each.label and each.only != "comfyui"}
    return Json([
        {
            "name": each.label,
            "aliases": [name for name in each.names if name != each.label],
            "options": {"scheduler": each.scheduler} if each.scheduler else {},
        }
        for each in labelled.values()
    ])  # fmt: skip


@router.get("/schedulers")
async def schedulers() -> Json:
    """The schedulers, by A1111's names."""
    return Json([
        {
            "name": each.name,
            "label": each.label or each.name,
            "aliases": [name for name in each.names if name not in (each.name, each.label)] or None,
            "default_rho": -1.0,
            "need_inner_model": False,
        }
        for each in SCHEDULERS
    ])  # fmt: skip


@router.get("/sd-models")
def models(service: Served) -> Json:
    """The models. Hashes are there once somebody needed them."""
    return Json([
        {
            "title": each.title,
            "model_name": each.file.name,
            "hash": each.sha256[:10] or None,
            "sha256": each.sha256 or None,
            "filename": str(each.file.path),
            "config": None,
        }
        for each in service.models.listed()
    ])  # fmt: skip


@router.get("/sd-vae")
def vaes(service: Served) -> Json:
    """The autoencoders."""
    return Json([{"model_name": each.path.name, "filename": str(each.path)} for each in service.models.files("vae")])


@router.get("/sd-modules")
def modules(service: Served) -> Json:
    """The autoencoders and text encoders (Forge)."""
    found = [*service.models.files("vae"), *service.models.files("text encoder")]
    return Json([{"model_name": each.path.name, "filename": str(each.path)} for each in found])


@router.get("/loras")
def loras(service: Served) -> Json:
    """The LoRAs, with what their files say of them."""
    return Json([_lora(each.name, each.path) for each in service.models.files("lora")])


def _lora(name: str, path: Path) -> dict[str, Any]:
    metadata = header_of(path).get("__metadata__", {})
    alias = metadata.get("ss_output_name") or name.rpartition("/")[2]
    return {"name": name.rpartition("/")[2], "alias": alias, "path": str(path), "metadata": metadata}


@router.get("/embeddings")
def embeddings(service: Served) -> Json:
    """The embeddings. Those whose file does not say how many vectors it has are there with none."""
    return Json({"loaded": dict(_embeddings(service)), "skipped": {}})


def _embeddings(service: Service) -> Iterator[tuple[str, dict[str, Any]]]:
    for each in service.models.files("embedding"):
        shapes = [tensor.get("shape") for name, tensor in header_of(each.path).items() if name != "__metadata__"]
        rows, width = next((shape for shape in shapes if shape and len(shape) == 2), (None, None))
        yield (
            each.name.rpartition("/")[2],
            {"step": None, "sd_checkpoint": None, "sd_checkpoint_name": None, "shape": width, "vectors": rows},
        )


@router.get("/upscalers")
def upscalers(service: Served) -> Json:
    """What makes pictures larger."""
    files = {each.name: str(each.path) for each in service.models.files("upscaler")}
    return Json([
        {"name": name, "model_name": None, "model_path": files.get(name), "model_url": None, "scale": 4}
        for name in service.models.upscalers()
    ])  # fmt: skip


@router.get("/latent-upscale-modes")
async def latent_upscalers() -> Json:
    """What makes latents larger."""
    return Json([{"name": name} for name in LATENT_UPSCALERS])


@router.get("/prompt-styles")
def styles(service: Served) -> Json:
    """The saved styles."""
    return Json([style._asdict() for style in styles_of(service).values()])


@router.get("/hypernetworks")
def hypernetworks() -> Json:
    """There are none."""
    return Json([])


@router.get("/face-restorers")
def face_restorers() -> Json:
    """There are none."""
    return Json([])


@router.get("/realesrgan-models")
def realesrgan() -> Json:
    """There are none."""
    return Json([])


@router.get("/extensions")
def extensions() -> Json:
    """There are none."""
    return Json([])


@router.get("/scripts")
def scripts() -> Json:
    """Those of alwayson_scripts, and those of script_name."""
    both = [*SCRIPTS, *(name for name, script in series.SCRIPTS.items() if not script.of_pictures)]
    return Json({"txt2img": both, "img2img": [*SCRIPTS, *series.SCRIPTS]})


@router.get("/script-info")
def script_info() -> Json:
    """… and what they take."""
    found = []
    for for_pictures in (False, True):
        named = {
            name: script.arguments for name, script in series.SCRIPTS.items() if for_pictures or not script.of_pictures
        }
        for name, arguments in (*ARGUMENTS.items(), *named.items()):
            described = [
                {"label": label, "value": usual, "minimum": None, "maximum": None, "step": None, "choices": None}
                for label, usual in arguments
            ]
            found.append(
                {"name": name, "is_alwayson": name in ARGUMENTS, "is_img2img": for_pictures, "args": described}
            )
    return Json(found)


@router.get("/cmd-flags")
def flags(service: Served) -> Json:
    """How the server was started, under A1111's names."""
    setup = service.setup
    return Json({
        "api": True,
        "api_auth": None,
        "api_server_stop": setup.stoppable,
        "cors_allow_origins": ",".join(setup.origins) or None,
        "data_dir": str(setup.data),
        "ckpt_dir": str(setup.models[0]) if setup.models else None,
        "styles_file": [str(setup.styles)] if setup.styles else [],
    })  # fmt: skip


@router.get("/memory")
def memory(service: Served) -> Json:
    """How much of the machine's memory there is, and what this process has of it."""
    total, free = memory_of_machine()
    used = memory_of_process()
    return Json({"ram": {"free": free, "used": used, "total": total}, "cuda": {"error": "no CUDA device is used"}})


for each in (
    "refresh-checkpoints",
    "refresh-vae",
    "refresh-loras",
    "refresh-embeddings",
    "refresh-vae-and-text-encoders",
):

    @router.post(f"/{each}", name=each)
    def refresh(service: Served) -> Json:
        """Look at the folders again."""
        service.models.refresh()
        return Json(None)


@router.post("/unload-checkpoint")
async def unload(service: Served) -> Json:
    """Give back the model's memory, when the picture at hand is finished."""
    import asyncio

    await asyncio.wrap_future(service.painter.between(service.models.free))
    return Json({})


@router.post("/reload-checkpoint")
def reload(service: Served) -> Json:
    """The model is loaded when it is next needed."""
    return Json({})


def stops(service: Service) -> None:
    """Raises RequestError unless clients may stop the server."""
    if not service.setup.stoppable:
        raise RequestError("Not Found", 404)


@router.post("/server-stop")
@router.post("/server-kill")
def stop(service: Served) -> Json:
    """End the server, when the picture at hand is finished."""
    import signal

    stops(service)
    os.kill(os.getpid(), signal.SIGTERM)
    return Json({})


@router.post("/server-restart")
def restart(service: Served) -> Json:
    """The server cannot start itself; what started it can."""
    stops(service)
    raise RequestError("the server is started again by what started it", 501)
