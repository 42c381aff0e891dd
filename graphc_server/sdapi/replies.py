"""Answers as A1111 gives them."""

from __future__ import annotations

import json
import time
from pathlib import PurePosixPath
from typing import Any

from graphc_images.pictures.parameters import FIRST, read_parameters
from graphc_server.painter import Turn
from graphc_server.pictures import base64_of
from graphc_server.service import Service
from graphc_server.store import HINT, Job, Painted

STAMP = "%Y%m%d%H%M%S"


def painted(service: Service, job: Job, styles: list[str], send: bool) -> dict[str, Any]:
    """The answer of txt2img and img2img. Pictures that are not kept are forgotten with it."""
    pictures = [each for each in service.store.pictures(job.id) if each.seed != HINT]
    files = [base64_of(content) for content in service.files_of(job)] if send else []
    answer = {"images": files, "parameters": job.asked, "info": json.dumps(_info(service, job, pictures, styles))}
    service.handed_over(job)
    return answer


def _info(service: Service, job: Job, pictures: list[Painted], styles: list[str]) -> dict[str, Any]:
    """How the pictures were made: from their texts, which say what was usual too."""
    texts = [picture.parameters for picture in pictures]
    first = read_parameters(texts[0] if texts else "")
    read = [read_parameters(text) for text in texts]
    said, work = first.settings, job.work["settings"]
    width, height = first.size() or (0, 0)
    subseeds = [int(each.settings.get("Variation seed", work.get("subseed", -1))) for each in read]
    return {
        "prompt": first.prompt,
        "all_prompts": [each.prompt for each in read],
        "negative_prompt": first.negative_prompt,
        "all_negative_prompts": [each.negative_prompt for each in read],
        "seed": pictures[0].seed if pictures else work.get("seed", -1),
        "all_seeds": [picture.seed for picture in pictures],
        "subseed": subseeds[0] if subseeds else -1,
        "all_subseeds": subseeds,
        "subseed_strength": work.get("subseed_strength", 0),
        "width": width,
        "height": height,
        "sampler_name": said.get("Sampler", ""),
        "cfg_scale": float(said.get("CFG scale", 0)),
        "steps": int(said.get("Steps", 0)),
        "batch_size": work.get("batch_size", 1),
        "restore_faces": False,
        "face_restoration_model": None,
        "sd_model_name": said.get("Model") or PurePosixPath(job.work.get("model", "")).stem,
        "sd_model_hash": said.get("Model hash", ""),
        "sd_vae_name": said.get("VAE"),
        "sd_vae_hash": said.get("VAE hash"),
        "seed_resize_from_w": (work.get("seed_resize_from") or {"!tuple": [-1, -1]})["!tuple"][0],
        "seed_resize_from_h": (work.get("seed_resize_from") or {"!tuple": [-1, -1]})["!tuple"][1],
        "denoising_strength": float(said["Denoising strength"]) if "Denoising strength" in said else None,
        "extra_generation_params": {name: value for name, value in said.items() if name not in (*FIRST, "Version")},
        "index_of_first_image": _grids(job.work.get("sheet")),
        "infotexts": texts,
        "styles": styles,
        "job_timestamp": time.strftime(STAMP, time.localtime(job.started or job.created)),
        "clip_skip": int(said.get("Clip skip", 1)),
        "is_using_inpainting_conditioning": False,
        "version": said.get("Version", ""),
        "comments": job.remarks,
    }


def _grids(sheet: Any) -> int:
    """How many come before the pictures."""
    return 0 if not sheet else 1 + (len(sheet["pages"]) if sheet["each"] else 0)


def progress(turn: Turn | None, *, picture: bool) -> dict[str, Any]:
    """The answer of /sdapi/v1/progress."""
    state: dict[str, Any] = {
        "skipped": False, "interrupted": False, "stopping_generation": False, "job": "", "job_count": 0,
        "job_timestamp": "0", "job_no": 0, "sampling_step": 0, "sampling_steps": 0,
    }  # fmt: skip
    if turn is None:
        idle = {"progress": 0.0, "eta_relative": 0.0, "state": state, "current_image": None}
        return {**idle, "textinfo": None, "current_task": None}
    state |= {
        "skipped": "skip" in turn.asked,
        "interrupted": "interrupt" in turn.asked,
        "job": turn.job.id,
        "job_count": turn.order.batches * turn.passes,
        "job_timestamp": time.strftime(STAMP, time.localtime(turn.job.started or 0)),
        "job_no": turn.batch * turn.passes + turn.second,
        "sampling_step": turn.step,
        "sampling_steps": turn.steps,
    }
    share = done(turn)
    return {
        "progress": share,
        "eta_relative": eta(turn),
        "state": state,
        "current_image": base64_of(turn.preview) if picture and turn.preview else None,
        "textinfo": None,
        "current_task": turn.job.id,
    }


def done(turn: Turn) -> float:
    """Above 0 from the beginning, as A1111 has it, and never above 1."""
    return min(0.01 + turn.share, 1.0)


def eta(turn: Turn) -> float:
    """Seconds that are left, as far as can be seen."""
    passed = time.monotonic() - turn.began
    return max(passed / done(turn) - passed, 0.0)
