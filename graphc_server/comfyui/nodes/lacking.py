"""Nodes of extensions that applications look for before they connect, and that cannot be carried out: their files are listed, and
a graph that has one is refused with the reason.

Source: cubiq's ComfyUI_IPAdapter_plus, Acly's comfyui-inpaint-nodes, for the names.
"""

from __future__ import annotations

from typing import Any

from graphc_images import SettingError
from graphc_server.comfyui.executor import Room
from graphc_server.comfyui.nodes.loaders import file_in
from graphc_server.comfyui.table import Input, link, node

FACES = "faces of reference (FaceID) cannot be followed yet: there is no network that reads them; other IP-Adapters can be used"
FOOOCUS = "Fooocus' patch for inpainting cannot be used yet; below 80% strength, or with a model for inpainting, none is wanted"
REMOVERS = "networks that fill holes (MAT, LaMa) are not known yet; fill with what is around, or with grey"


def _lacking(reason: str, name: str, *inputs: Input, gives: str) -> None:
    def refused(library: Any, **values: Any) -> str:
        return reason

    def run(room: Room, **values: Any) -> Any:
        raise SettingError(reason)

    run.__doc__ = f"Refused: {reason}."
    node(name, "not here", *inputs, gives=gives, refused=refused)(run)


_lacking(FACES, "IPAdapterFaceID", link("model"), link("ipadapter"), link("image"), gives="MODEL")
_lacking(
    FOOOCUS,
    "INPAINT_LoadFooocusInpaint",
    file_in("inpaint", "head"),
    file_in("inpaint", "patch"),
    gives="INPAINT_PATCH",
)
_lacking(
    FOOOCUS, "INPAINT_ApplyFooocusInpaint", link("model"), link("patch", "INPAINT_PATCH"), link("latent"), gives="MODEL"
)
_lacking(REMOVERS, "INPAINT_LoadInpaintModel", file_in("inpaint", "model_name"), gives="INPAINT_MODEL")
_lacking(REMOVERS, "INPAINT_InpaintWithModel", link("inpaint_model"), link("image"), link("mask"), gives="IMAGE")
