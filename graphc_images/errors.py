"""What graphc_images raises: each error is one clear message for the person who asked for the picture."""

from __future__ import annotations

from graphc import GraphcError


class ImageError(GraphcError):
    """Any error that what was asked for causes."""


class SettingError(ImageError):
    """A setting has a name that nothing has, or a value that does not fit; the message names the setting."""


class ModelError(ImageError):
    """A file is not a model that is known, or lacks what is needed of it; the message names the file or the tensor."""
