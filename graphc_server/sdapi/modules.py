"""Autoencoders and text encoders by name, which Forge has in one list."""

from __future__ import annotations

from collections.abc import Sequence

from graphc_images import ModelError
from graphc_server.errors import RequestError
from graphc_server.models import Models

Chosen = tuple[str | None, tuple[str, ...]]
"""An autoencoder, if one is named, and text encoders."""


def modules_called(
    models: Models, names: Sequence[str], field: str, kinds: Sequence[str] = ("vae", "text encoder")
) -> Chosen:
    """The names without their folders. Raises RequestError that names the field."""
    plain = [str(given).replace("\\", "/").rpartition("/")[2] for given in names]
    try:
        autoencoder, text = models.modules(plain, kinds)
    except ModelError as error:
        raise RequestError(f"{field}: {error}") from None
    return autoencoder.name if autoencoder else None, tuple(path.name for path in text)
