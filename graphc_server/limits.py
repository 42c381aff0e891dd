"""How much one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass

from graphc_images import Settings
from graphc_server.errors import RequestError


@dataclass(frozen=True)
class Limits:
    """The most that is done; what is above is refused, with the name of the limit."""

    body: int = 128 << 20
    """Bytes of a request."""
    pixels: int = 1 << 24
    """Of a picture that is sent, or asked for."""
    steps: int = 500
    pictures: int = 64
    """Of one request."""
    waiting: int = 256
    """Requests in the queue."""

    def check(self, *requests: Settings) -> None:
        """Raises RequestError for requests above a limit, each by itself or all together."""
        for settings in requests:
            self._check_one(settings)
        self.check_number("pictures", sum(each.batch_size * each.batches for each in requests))

    def _check_one(self, settings: Settings) -> None:
        wide, high = settings.width or 512, settings.height or 512
        scaled_wide = settings.hires_width or int(wide * settings.hires_scale)
        scaled_high = settings.hires_height or int(high * settings.hires_scale)
        asked = {
            "pixels": max(wide * high, scaled_wide * scaled_high),
            "steps": max(settings.steps or 0, settings.hires_steps or 0),
        }
        for name, number in asked.items():
            self.check_number(name, number)

    def check_number(self, name: str, number: int) -> None:
        """Raises RequestError for a number above the limit of this name."""
        if number > getattr(self, name):
            raise RequestError(f"{name}: {number} are asked for, and the server allows {getattr(self, name)}")
