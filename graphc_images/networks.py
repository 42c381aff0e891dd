"""LoRAs that a prompt or the settings name: put on before a picture, changed or taken off before the next, nothing reloaded."""

from __future__ import annotations

import warnings
from pathlib import Path

from graphc_images.errors import ModelError, SettingError
from graphc_images.folders import ModelFolders
from graphc_images.models import ImageModel
from graphc_images.prompts.extras import take_networks
from graphc_images.settings import Settings


class Networks:
    """The LoRAs of a model, by the names that prompts give them."""

    def __init__(self, model: ImageModel, folders: ModelFolders | None) -> None:
        self.model, self.folders = model, folders

    def applied(self, settings: Settings) -> Settings:
        """Put on what is named, at its strength, and take off all others; the settings come back.

        One that a prompt names and that there is not is left out with a warning, as is what of a LoRA fits nothing (A1111).
        Raises SettingError for other kinds of networks, and ModelError for one of the settings that there is not.
        """
        wanted: dict[str, dict[str, float]] = {}
        for network in take_networks(settings.prompt)[1]:
            if network.kind != "lora":
                raise SettingError(f"<{network.kind}:{network.name}>: only LoRAs can be used")
            try:
                wanted[str(self._path(network.name))] = _strengths(network.text_weight, network.model_weight)
            except ModelError as error:
                warnings.warn(str(error), RuntimeWarning, stacklevel=2)
        for name, strength in settings.loras.items():
            wanted[str(self._path(name))] = _strengths(strength, strength)
        self._put_on(wanted)
        return settings

    def _put_on(self, wanted: dict[str, dict[str, float]]) -> None:
        for name in [name for name in self.model.loras if name not in wanted]:
            self.model.unload_lora(name)
        there = {name: strength for name, strength in wanted.items() if name in self.model.loras}
        if there:
            self.model.set_lora(there)
        for name, strength in wanted.items():
            if name not in there:
                self.model.load_lora(name, strength, name)

    def _path(self, name: str) -> Path:
        if self.folders is not None:
            return self.folders.find("lora", name)
        if not Path(name).is_file():
            raise ModelError(f"there is no LoRA {name!r}: it is no file, and no folder of models was given")
        return Path(name)


def _strengths(text: float, model: float) -> dict[str, float]:
    return {"text_encoder": text, "denoiser": model}
