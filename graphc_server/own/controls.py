"""ControlNets and adapters as requests have them: `controls` among the settings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from graphc_images.control_units import ControlUnit
from graphc_server.own.strict import Strict
from graphc_server.pictures import decoded
from graphc_server.sdapi.units import units_of
from graphc_server.service import Service

Share = Annotated[float, Field(ge=0, le=1)]


class Control(Strict):
    """A control, with sd-webui-controlnet's names. Without an `image`, the one that painting begins with is followed; `module` is
    the preprocessor that makes edges or depth of it."""

    model: str
    image: str | None = None
    module: str = "none"
    weight: Annotated[float, Field(ge=-10, le=10)] = 1.0
    guidance_start: Share = 0.0
    guidance_end: Share = 1.0
    control_mode: Literal["Balanced", "My prompt is more important", "ControlNet is more important"] = "Balanced"
    resize_mode: Literal["Just Resize", "Crop and Resize", "Resize and Fill"] = "Crop and Resize"
    processor_res: Annotated[int | None, Field(ge=64, le=2048)] = None
    threshold_a: float | None = None
    threshold_b: float | None = None
    pixel_perfect: bool = False


def controls_of(service: Service, asked: list[dict[str, Any]]) -> tuple[ControlUnit, ...]:
    """The controls. Raises RequestError that names the field."""

    def picture(text: str, field: str) -> Any:
        return decoded(text, field, service.limits.pixels, service.setup.fetching.fetch)

    return units_of(asked, picture, service.models)
