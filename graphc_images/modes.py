"""Two programs whose pictures can be made again; where they differ, one switch decides."""

from __future__ import annotations

from typing import Literal, get_args

from graphc_images.errors import SettingError

Mode = Literal["a1111", "comfyui"]


def mode_of(name: str) -> Mode:
    """The mode of this name."""
    for mode in get_args(Mode):
        if name == mode:
            return mode  # type: ignore[no-any-return]
    raise SettingError(f"there is no mode {name!r}; there are {', '.join(get_args(Mode))}")
