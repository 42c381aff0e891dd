"""Which jobs go through a model together, so that each of several clients need not wait for all before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphc_images import SettingError
from graphc_images.models import room_of
from graphc_images.prompts.extras import take_networks
from graphc_server.store import Job

MOST = 8
"""Jobs that are painted together, where there is room for them."""

SIDE = 512
"""Pixels of a side that is the model's usual one."""

SAME = ("width", "height", "batch_size", "tiling", "vae_tiling", "vae_tile", "loras")
"""Settings that jobs have in common: the size, and what changes the model. The others are each job's own."""


def beside(first: Job, device: str) -> Callable[[Job], bool]:
    """What says of jobs, one after the other, whether they are painted with the first."""
    kind, left = kind_of(first.work), places(first.work, device) - 1

    def fits(other: Job) -> bool:
        nonlocal left
        found = kind is not None and left > 0 and kind_of(other.work) == kind
        left -= found
        return found

    return fits


def kind_of(work: Mapping[str, Any]) -> object:
    """What is equal for jobs that can be painted together; None for those that are painted alone: several requests of one job,
    tiles of a large picture, ControlNets, which are loaded for one picture, and other LoRAs in a second pass."""
    settings = work.get("settings")
    if settings is None or settings.get("controls") or work.get("others") or work.get("enlarging"):
        return None
    try:
        networks = take_networks(settings.get("prompt", ""))[1]
        if take_networks(settings.get("hires_prompt") or settings.get("prompt", ""))[1] != networks:
            return None
    except SettingError:
        return None
    return work.get("model"), work.get("vae"), work.get("text"), [settings.get(name) for name in SAME], networks


def places(work: Mapping[str, Any], device: str) -> int:
    """How many jobs of such a size there is room for."""
    settings = work["settings"] if work.get("settings") else {}
    width, height = (settings.get(name) or SIDE for name in ("width", "height"))
    latent: int = max(width // 8, 1) * max(height // 8, 1) * settings.get("batch_size", 1)
    return max(1, min(MOST, room_of(device) // latent))
