"""Nodes that have ControlNets and T2I-Adapters steer.

Source: ComfyUI's nodes.py and comfy_extras/nodes_controlnet.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphc_images import SettingError
from graphc_images.models.controls import UNION
from graphc_server.comfyui.executor import Room
from graphc_server.comfyui.table import choice, link, node, number
from graphc_server.comfyui.values import Applied, ControlFile, Texts, Vae

GROUP = "conditioning/controlnet"
CONTROL, IMAGE, STRENGTH = link("control_net"), link("image"), number("strength", 1.0, 0.0, 10.0)


def _with(texts: Texts, applied: Applied) -> Texts:
    return tuple(replace(told, controls=(*told.controls, applied)) for told in texts)


@node("ControlNetApply", GROUP, link("conditioning"), CONTROL, IMAGE, STRENGTH, gives="CONDITIONING")
def apply(room: Room, conditioning: Texts, control_net: ControlFile, image: np.ndarray, strength: float) -> Texts:
    """Steer by a picture; the negative text is steered by it too."""
    return _with(conditioning, Applied(control_net, image, strength, everywhere=True)) if strength else conditioning


BOTH = (link("positive", "CONDITIONING"), link("negative", "CONDITIONING"))


@node(
    "ControlNetApplyAdvanced", GROUP, *BOTH, CONTROL, IMAGE, STRENGTH, number("start_percent", 0.0, 0.0, 1.0, 0.001),
    number("end_percent", 1.0, 0.0, 1.0, 0.001), link("vae", optional=True), gives="CONDITIONING CONDITIONING",
    title="Apply ControlNet",
)  # fmt: skip
def apply_advanced(
    room: Room, positive: Texts, negative: Texts, control_net: ControlFile, image: np.ndarray, strength: float,
    start_percent: float, end_percent: float, vae: Vae | None,
) -> tuple[Texts, Texts]:  # fmt: skip
    """Steer both texts by a picture, between two shares of the way. There is no control yet that wants an autoencoder."""
    if not strength:
        return positive, negative
    if start_percent > end_percent:
        raise SettingError(f"start_percent: {start_percent:g} is above end_percent, {end_percent:g}")
    applied = Applied(control_net, image, strength, start_percent, end_percent)
    return _with(positive, applied), _with(negative, applied)


SHOWN = {
    "auto": None, "openpose": "openpose", "depth": "depth", "hed/pidi/scribble/ted": "softedge",
    "canny/lineart/anime_lineart/mlsd": "canny", "normal": "normal", "segment": "segmentation", "tile": "tile",
    "repaint": "inpaint",
}  # fmt: skip
"""ComfyUI's names of what pictures show, and ours."""
assert set(SHOWN.values()) <= {None, *UNION}


@node("SetUnionControlNetType", GROUP, CONTROL, choice("type", tuple(SHOWN)), gives="CONTROL_NET")
def union_type(room: Room, control_net: ControlFile, type: str) -> ControlFile:
    """What pictures show, for ControlNets that tell that apart."""
    return replace(control_net, shows=SHOWN[type])
