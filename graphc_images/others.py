"""Other models that go on from a pipeline's latents: refiners, and those of second passes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphc_images.conditions import Conditioner
from graphc_images.errors import ModelError, SettingError
from graphc_images.folders import ModelFolders
from graphc_images.from_files import FromFiles
from graphc_images.models import ImageModel
from graphc_images.networks import Networks
from graphc_images.refining import check_other

MOST = 2
"""Models that are kept: a picture has a refiner and a second pass at most."""

File = str | os.PathLike[str]


@dataclass(frozen=True)
class Modules:
    """Files in place of a checkpoint's own autoencoder and text encoders; the latter by name, or as they come."""

    vae: File | None = None
    text: Mapping[str, File] | Sequence[File] = ()

    @property
    def files(self) -> list[Path]:
        """All of them."""
        text = self.text.values() if isinstance(self.text, Mapping) else self.text
        return [Path(each) for each in (self.vae, *text) if each is not None]


@dataclass(frozen=True)
class Painter:
    """A model as a pass needs it: with what is told to it, and its LoRAs."""

    conditioner: Conditioner
    networks: Networks

    @property
    def model(self) -> ImageModel:
        """The model."""
        return self.conditioner.model


class Others:
    """The models that go on from one's latents, each loaded when it is named; those that were named last are kept."""

    def __init__(self, model: ImageModel, folders: ModelFolders | None, modules: Modules) -> None:
        """`modules` are those of the first model."""
        self.model, self.folders, self.modules = model, folders, modules
        self._loaded: FromFiles[Painter] = FromFiles(lambda painter: painter.model.close(), MOST)

    def __call__(self, setting: str, name: str | None, modules: tuple[str, ...] | None = None) -> Painter:
        """A checkpoint, the first model's own without a name, with an autoencoder and text encoders by name; with those of the
        first model if `modules` are None. Raises ImageError that names the setting."""
        path, found = self._checkpoint(name), self.modules if modules is None else self._modules(modules)

        def load() -> Painter:
            model = self.model.sibling(path, vae=found.vae, text=found.text)
            return Painter(Conditioner(model), Networks(model, self.folders))

        painter = self._loaded((name, modules), load, path, *found.files)
        check_other(setting, self.model, painter.model)
        painter.model.seamless, painter.model.tiles = self.model.seamless, self.model.tiles
        return painter

    def close(self) -> None:
        """Free what is loaded; it is loaded again if it is needed."""
        for each in self._loaded.values():
            each.model.close()

    def _checkpoint(self, name: str | None) -> Path:
        if name is None:
            return Path(self.model.components["denoiser"].file)
        return Path(name) if self.folders is None else self.folders.find("checkpoint", name)

    def _modules(self, names: Sequence[str]) -> Modules:
        """The files of names."""
        if not names:
            return Modules()
        if self.folders is None:
            raise SettingError(
                f"hires_modules: {names[0]!r} is looked for in the folders of models, and none was given"
            )
        try:
            return Modules(*self.folders.modules(names))
        except ModelError as error:
            raise SettingError(f"hires_modules: {error}") from None
