"""LoRAs that a prompt or the settings name: put on before a picture, changed or taken off before the next, nothing reloaded."""

from __future__ import annotations

import logging
from pathlib import Path

import graphc
from graphc_images.errors import ModelError, SettingError
from graphc_images.folders import ModelFolders
from graphc_images.from_files import Stamp, stamp
from graphc_images.models import ImageModel
from graphc_images.prompts.extras import Network, take_networks
from graphc_images.settings import Settings

LOG = logging.getLogger("graphc.images")

Strengths = dict[str, float]


class Networks:
    """The LoRAs of a model, by the names that prompts give them. `files` are those that are on, by these names."""

    def __init__(self, model: ImageModel, folders: ModelFolders | None) -> None:
        self.model, self.folders = model, folders
        self.files: dict[str, Path] = {}
        self._said: set[Path] = set()
        self._stamps: dict[str, Stamp] = {}
        """Of the files that are on."""

    def applied(self, settings: Settings, words: Settings | None = None, *, sparing: bool = False) -> Settings:
        """Put on what is named, at its strength, and take off all others; the settings come back. With `words`, text encoders
        have what these name. `sparing`: it is never an error that a LoRA has nothing for the model.

        One that is named several times has the sum of these strengths. One that a prompt names and that there is not, or that has
        nothing for the model, is left out, and what of a LoRA fits nothing is left out too: the log says so (A1111). A file of
        the settings is found by its name in a prompt as well.
        Raises SettingError for other kinds of networks, and for LoRAs of the settings ModelError where there is none and
        NothingFitsError where it has nothing for the model.
        """
        wanted, spared = self._wanted(settings)
        if words is not None:
            of_words, also = self._wanted(words)
            spared |= also
            wanted = {
                path: _strengths(_of(of_words, path, "text_encoder"), _of(wanted, path, "denoiser"))
                for path in {**of_words, **wanted}
            }
        self.put_on(wanted, set(wanted) if sparing else spared)
        return settings

    def check(self, settings: Settings) -> None:
        """Raises as `applied`, for names that settings cannot have."""
        self._wanted(settings)

    def _wanted(self, settings: Settings) -> tuple[dict[Path, Strengths], set[Path]]:
        """The LoRAs that settings name, and those of which it is no error that they have nothing for the model."""
        asked = {name: self._path(name) for name in settings.loras}
        wanted: dict[Path, Strengths] = {}
        for network in take_networks(settings.prompt)[1]:
            path = self._named(network, {path.stem: path for path in asked.values()})
            if path is not None:
                wanted[path] = _sum(wanted.get(path, {}), _strengths(network.text_weight, network.model_weight))
                self.files[network.name] = path
        spared = set(wanted)
        for name, strength in settings.loras.items():
            wanted[asked[name]] = _sum(wanted.get(asked[name], {}), _strengths(strength, strength))
            spared.discard(asked[name])
            if asked[name] not in self.files.values():
                self.files[asked[name].stem] = asked[name]
        return wanted, spared

    def _named(self, network: Network, asked: dict[str, Path]) -> Path | None:
        """The file of a network that a prompt names; None for one that there is not."""
        if network.kind != "lora":
            raise SettingError(f"<{network.kind}:{network.name}>: only LoRAs can be used")
        if network.rank is not None:
            LOG.warning("<lora:%s>: dyn=%d is not used: the LoRA has all its ranks", network.name, network.rank)
        if network.name in asked:
            return asked[network.name]
        try:
            return self._path(network.name)
        except ModelError as error:
            LOG.warning("%s", error)
            return None

    def put_on(self, wanted: dict[Path, Strengths], spared: set[Path]) -> None:
        """Put on these files, and take off all others; `spared` are those of which it is no error that they have nothing for the
        model."""
        strengths = {str(path): strength for path, strength in wanted.items()}
        for name in [
            name for name in self.model.loras if name not in strengths or stamp(Path(name)) != self._stamps[name]
        ]:
            self.model.unload_lora(name)
        there = {name: strength for name, strength in strengths.items() if name in self.model.loras}
        if there:
            self.model.set_lora(there)
        for path in [path for path in wanted if str(path) not in there]:
            self._stamps[str(path)] = stamp(path)
            try:
                self.model.load_lora(path, wanted[path], str(path))
            except graphc.NothingFitsError as error:
                if path not in spared:
                    raise
                LOG.warning("%s: it is left out: %s", path, error)
                self.files = {name: file for name, file in self.files.items() if file != path}
                continue
            self._say_unmatched(path)

    def _say_unmatched(self, path: Path) -> None:
        """Say once what of a LoRA fits nothing."""
        names = self.model.unmatched.get(str(path), [])
        if names and path not in self._said:
            self._said.add(path)
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            LOG.warning("%s: in this model nothing fits %s%s", path, ", ".join(names[:3]), more)

    def _path(self, name: str) -> Path:
        if self.folders is not None:
            path = self.folders.find("lora", name)
            if not path.exists():
                raise ModelError(f"there is no LoRA {name!r}: {path} is no longer there")
            return path
        if not Path(name).is_file():
            raise ModelError(f"there is no LoRA {name!r}: it is not a file, and no folder of models was given")
        return Path(name)


def _of(wanted: dict[Path, Strengths], path: Path, part: str) -> float:
    return wanted[path][part] if path in wanted else 0.0


def _sum(one: Strengths, other: Strengths) -> Strengths:
    return {part: one.get(part, 0.0) + strength for part, strength in other.items()}


def _strengths(text: float, model: float) -> Strengths:
    return {"text_encoder": text, "denoiser": model}
