"""LoRAs that a prompt or the settings name: put on before a picture, changed or taken off before the next, nothing reloaded."""

from __future__ import annotations

import warnings
from pathlib import Path

from graphc_images.errors import ModelError, SettingError
from graphc_images.folders import ModelFolders
from graphc_images.models import ImageModel
from graphc_images.prompts.extras import Network, take_networks
from graphc_images.settings import Settings


class Networks:
    """The LoRAs of a model, by the names that prompts give them."""

    def __init__(self, model: ImageModel, folders: ModelFolders | None) -> None:
        self.model, self.folders = model, folders

    def applied(self, settings: Settings) -> Settings:
        """Put on what is named, at its strength, and take off all others; the settings come back.

        A LoRA that there is not is left out with a warning that names it, as is what fits nothing (A1111). Raises SettingError
        for other kinds of networks.
        """
        wanted: dict[str, dict[str, float]] = {}
        named = [Network("lora", name, weight, weight) for name, weight in settings.loras.items()]
        for network in [*take_networks(settings.prompt)[1], *named]:
            if network.kind != "lora":
                raise SettingError(f"<{network.kind}:{network.name}>: only LoRAs can be used")
            path = self._path(network.name)
            if path is not None:
                wanted[str(path)] = {"text_encoder": network.text_weight, "denoiser": network.model_weight}
        for name in [name for name in self.model.loras if name not in wanted]:
            self.model.unload_lora(name)
        there = {name: strength for name, strength in wanted.items() if name in self.model.loras}
        if there:
            self.model.set_lora(there)
        for name, strength in wanted.items():
            if name not in there:
                self.model.load_lora(name, strength, name)
        return settings

    def _path(self, name: str) -> Path | None:
        if Path(name).is_file():
            return Path(name)
        if self.folders is None:
            raise SettingError(f"there is no LoRA {name!r}: say in which folder of models it is")
        try:
            return self.folders.find("lora", name)
        except ModelError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
            return None
