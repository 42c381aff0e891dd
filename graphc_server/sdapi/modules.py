"""Autoencoders and text encoders by name, which Forge has in one list."""

from __future__ import annotations

from collections.abc import Sequence

from graphc_server.errors import RequestError
from graphc_server.models import Models

Chosen = tuple[str | None, tuple[str, ...]]
"""An autoencoder, if one is named, and text encoders."""


def modules_called(
    models: Models, names: Sequence[str], field: str, kinds: Sequence[str] = ("vae", "text encoder")
) -> Chosen:
    """The names without their folders. Raises RequestError that names the field."""
    what = " or ".join({"vae": "autoencoder"}.get(kind, kind) for kind in kinds)
    found: dict[str, list[str]] = {"vae": [], "text encoder": []}
    for given in names:
        name = str(given).replace("\\", "/").rpartition("/")[2]
        kind = next((kind for kind in kinds if name in _names(models, kind)), None)
        if kind is None:
            raise RequestError(f"{field}: there is no {what} {name[:60]!r}")
        found[kind].append(name)
    if len(set(found["vae"])) > 1:
        raise RequestError(f"{field}: one autoencoder can be given, and not {', '.join(found['vae'])}")
    return next(iter(found["vae"]), None), tuple(found["text encoder"])


def _names(models: Models, kind: str) -> set[str]:
    return {name for each in models.files(kind) for name in (each.name, each.path.name)}
