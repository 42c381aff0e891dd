"""What all bodies of graphc's own protocol are."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """What has no other fields than these."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
