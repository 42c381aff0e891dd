"""stable-diffusion.cpp's jobs: `/sdcpp/v1`. A request is put into the queue and answered at once; its state is asked for.

Source: leejet/stable-diffusion.cpp, examples/server.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict

from graphc_images import SettingError, Settings
from graphc_images.latent_scaling import LATENT_UPSCALERS
from graphc_images.sampling import SAMPLERS, SCHEDULERS, find_sampler, find_scheduler
from graphc_server.answers import Json
from graphc_server.errors import RequestError
from graphc_server.orders import Order, with_seeds
from graphc_server.pictures import decoded
from graphc_server.sdapi.painting import Served
from graphc_server.sdapi.requests import check_text, look_of, options_of
from graphc_server.service import Service, client_of
from graphc_server.store import Job

router = APIRouter(prefix="/sdcpp/v1")
STATES = {
    "waiting": "queued",
    "painting": "generating",
    "done": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}
FORMATS = ("png", "jpeg", "webp")


class Guidance(BaseModel):
    """How strongly the prompt guides."""

    txt_cfg: float | None = None
    distilled_guidance: float | None = None


class Sample(BaseModel):
    """The sampler's settings."""

    scheduler: str | None = None
    sample_method: str | None = None
    sample_steps: int | None = None
    eta: float | None = None
    guidance: Guidance = Guidance()


class Lora(BaseModel):
    """A LoRA by its path in the folder."""

    path: str
    multiplier: float = 1.0
    is_high_noise: bool = False


class Generating(BaseModel):
    """A request for pictures."""

    model_config = ConfigDict(allow_inf_nan=False)
    prompt: str = ""
    negative_prompt: str = ""
    clip_skip: int = -1
    width: int | None = None
    height: int | None = None
    strength: float | None = None
    seed: int = -1
    batch_count: int = 1
    init_image: str | None = None
    mask_image: str | None = None
    sample_params: Sample = Sample()
    lora: list[Lora] = []
    output_format: str = "png"
    output_compression: int = 100


@router.get("/capabilities")
def capabilities(service: Served) -> Json:
    """What there is."""
    samplers = dict.fromkeys(each.cpp or each.name for each in SAMPLERS)
    return Json({
        "models": [each.file.name for each in service.models.listed()],
        "samplers": list(samplers),
        "schedulers": [each.cpp or each.name for each in SCHEDULERS],
        "upscalers": [*LATENT_UPSCALERS, *service.models.upscalers()],
        "loras": [{"name": each.name, "path": each.name + each.path.suffix} for each in service.models.files("lora")],
        "output_formats": list(FORMATS),
        "supported_modes": ["img_gen"],
        "limits": {"max_batch_count": service.limits.pictures, "max_queue_size": service.limits.waiting},
        "features": {"cancel_queued": True, "cancel_generating": True, "init_image": True, "mask_image": True, "lora": True},
    })  # fmt: skip


@router.post("/img_gen", status_code=202)
def generate(service: Served, request: Request, body: Generating) -> Json:
    """Put a request into the queue."""
    check_text(body.model_dump())
    if body.output_format not in FORMATS:
        raise RequestError(f"output_format: {body.output_format[:40]!r} is none of {', '.join(FORMATS)}", 400)
    options = options_of(service)
    name = options["sd_model_checkpoint"]
    listed = service.models.find(name) if name else service.models.first()
    kind = "jpg" if body.output_format == "jpeg" else body.output_format
    quality = max(1, min(body.output_compression, 100))
    model = f"{listed.file.name}{listed.file.path.suffix}"
    order = Order(with_seeds(_settings(service, body)), model, None, kind, quality, kept=True, look=look_of(options))
    id = service.add(order, client_of(request), "sdcpp", {})
    return Json({"id": id, "kind": "img_gen", "status": "queued", "poll_url": f"/sdcpp/v1/jobs/{id}"}, 202)


@router.post("/vid_gen")
def video() -> Json:
    """There are no models of films."""
    raise RequestError("vid_gen: there is no model that makes films", 501)


def _settings(service: Service, body: Generating) -> Settings:
    sample = body.sample_params
    found: dict[str, Any] = {
        "prompt": body.prompt,
        "negative_prompt": body.negative_prompt,
        "seed": body.seed if body.seed >= 0 else -1,
        "batches": body.batch_count,
        "clip_skip": body.clip_skip if body.clip_skip > 0 else None,
        "width": body.width,
        "height": body.height,
        "steps": sample.sample_steps,
        "sampler": sample.sample_method,
        "scheduler": sample.scheduler,
        "eta": sample.eta,
        "cfg_scale": sample.guidance.txt_cfg,
        "guidance": sample.guidance.distilled_guidance,
        "loras": {
            str(service.models.folders.find("lora", each.path)): each.multiplier for each in _in_folder(service, body)
        },
        "mode": "comfyui",
    }
    if body.strength is not None:
        found["denoising_strength"] = body.strength
    for field, setting in (("init_image", "image"), ("mask_image", "mask")):
        text = getattr(body, field)
        if text:
            picture = decoded(text, field, service.limits.pixels, service.setup.fetching.fetch)
            found[setting] = picture.convert("RGB" if setting == "image" else "L")
    try:
        if sample.sample_method:
            find_sampler(sample.sample_method, "comfyui")
        if sample.scheduler:
            find_scheduler(sample.scheduler)
        return Settings.of(**found)
    except SettingError as problem:
        raise RequestError(str(problem), 400) from None


def _in_folder(service: Service, body: Generating) -> list[Lora]:
    """The LoRAs; raises RequestError for one that the folder does not have: paths of others are none of a client's business."""
    known = {name for each in service.models.files("lora") for name in (each.name, each.name + each.path.suffix)}
    for each in body.lora:
        if each.path not in known:
            raise RequestError(f"lora: there is no {each.path[:80]!r}", 400)
    return body.lora


def _job(service: Service, id: str) -> Job:
    job = service.store.job(id) if id.isascii() else None
    if job is None or job.protocol != "sdcpp":
        raise RequestError("there is no such job", 404)
    return job


@router.get("/jobs/{id}")
def state(service: Served, id: str) -> Json:
    """Where a job is, and its pictures when it is completed."""
    from graphc_server.pictures import base64_of

    job = _job(service, id)
    answer: dict[str, Any] = {
        "id": job.id, "kind": "img_gen", "status": STATES[job.state], "created": int(job.created),
        "started": job.started and int(job.started), "completed": job.ended and int(job.ended),
        "queue_position": 0, "result": None, "error": None,
    }  # fmt: skip
    if job.state == "waiting":
        waiting = service.store.waiting()
        answer["queue_position"] = waiting.index(job.id) + 1 if job.id in waiting else 0
    turn = service.painter.turns.get(job.id)
    if turn is not None:
        answer["progress"] = turn.share
    if job.state == "done":
        try:
            files = service.files_of(job)
        except FileNotFoundError:
            raise RequestError("the pictures of this job are gone", 410) from None
        images = [{"index": place, "b64_json": base64_of(file)} for place, file in enumerate(files)]
        answer["result"] = {"output_format": job.work["kind"], "images": images}
    if job.state == "failed":
        answer["error"] = {"code": "generation_failed", "message": job.error}
    return Json(answer)


@router.post("/jobs/{id}/cancel")
def cancel(service: Served, id: str) -> Json:
    """Take a job out of the queue, or end it after this step."""
    job = _job(service, id)
    if not service.painter.cancel(job.id):
        raise RequestError("the job is over already", 409)
    return Json({"id": job.id, "status": "cancelled"})
