"""Embeddings that prompts name: found in the folders of models and in LoRAs that are on, read once."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

import graphc
from graphc_images.errors import SettingError
from graphc_images.folders import ModelFolders
from graphc_images.from_files import FromFiles
from graphc_images.prompts.embeddings import Embedding, missing_embeddings
from graphc_images.settings import Settings

LOG = logging.getLogger("graphc.images")


BUNDLED = re.compile(r"bundle_emb\.(.+?)\.(string_to_param\.\*|[^.]+)")
"""What tensors of embeddings are called in a LoRA's file: the embedding, and for which text encoder it is."""

ENCODERS = {"t5": "t5xxl"}
"""Of these, encoders that a file of an embedding alone calls otherwise."""


class Inversions:
    """The embeddings of textual inversion that there are; `loras` gives the LoRAs that are on, whose files may have some."""

    def __init__(self, folders: ModelFolders | None, loras: Callable[[], Iterable[Path]] = tuple) -> None:
        self.folders, self._loras = folders, loras
        self._read: FromFiles[Embedding] = FromFiles()
        self._bundles: FromFiles[list[Embedding]] = FromFiles()
        self._said: set[tuple[Path, str]] = set()

    def named(self, settings: Settings) -> tuple[Embedding, ...]:
        """Those whose names stand somewhere in the prompts. In ComfyUI's mode the log names those that there are not.

        Of the settings' files it raises SettingError for one that is not an embedding, and CheckpointError for a damaged one,
        also if no prompt names it. One of the folders is left out: its name may be any word, and the log says so.
        """
        text = _text(settings)
        for name, file in settings.embeddings.items():
            self._embedding(name, Path(file))
        bundled = {each.name: each for path in dict.fromkeys(self._loras()) for each in self._bundled(path)}
        alone = {
            name: each for name, path in self._named(settings).items() if (each := self._readable(name, path, settings))
        }
        found = tuple(each for name, each in {**bundled, **alone}.items() if name in text)
        if settings.mode == "comfyui" and (missing := missing_embeddings(text, found)):
            LOG.warning("there is no embedding %s", ", ".join(missing))
        return found

    def check(self, settings: Settings, encoders: Collection[str]) -> None:
        """Say in the log which embeddings have no effect: those of the settings that no prompt names, and those that are for
        other text encoders than a model's. Raises as `named`."""
        text = _text(settings)
        for name in settings.embeddings:
            if name not in text:
                LOG.warning("no prompt names the embedding %r", name)
        for each in self.named(replace(settings, mode="a1111")):
            if not each.vectors.keys() & encoders:
                LOG.warning(
                    "the embedding %r is for %s, which the model has not: its name is read as words",
                    each.name,
                    ", ".join(each.vectors),
                )

    def files(self, settings: Settings) -> dict[str, Path]:
        """The files of those whose names stand in the prompts as words, by their names."""
        text = _text(settings)
        return {
            name: path
            for name, path in self._named(settings).items()
            if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) and self._readable(name, path, settings)
        }

    def _named(self, settings: Settings) -> dict[str, Path]:
        """The files of those whose names stand somewhere in the prompts."""
        text = _text(settings)
        return {name: path for name, path in self._files(settings.embeddings).items() if name in text}

    def _readable(self, name: str, path: Path, settings: Settings) -> Embedding | None:
        """An embedding; None for a file of the folders that is none or is damaged, which the log says once."""
        try:
            return self._embedding(name, path)
        except (SettingError, graphc.GraphcError) as error:
            if name in settings.embeddings:
                raise
            if (path, str(error)) not in self._said:
                self._said.add((path, str(error)))
                LOG.warning("the embedding %r is left out: %s", name, error)
            return None

    def _files(self, given: Mapping[str, str]) -> dict[str, Path]:
        files: Iterable = () if self.folders is None else self.folders.of("embedding")
        return {
            **{file.name.rpartition("/")[2]: file.path for file in files},
            **{name: Path(given[name]) for name in given},
        }

    def _embedding(self, name: str, path: Path) -> Embedding:
        def read() -> Embedding:
            tensors = {key: np.asarray(tensor) for key, tensor in graphc.open_checkpoint(path).items()}
            try:
                return Embedding.from_tensors(name, tensors)
            except SettingError as error:
                raise SettingError(f"{path}: {error}") from error

        return self._read((name, path), read, path)

    def _bundled(self, path: Path) -> list[Embedding]:
        """The embeddings in a LoRA's file."""

        def read() -> list[Embedding]:
            groups: dict[str, dict[str, np.ndarray]] = {}
            for key, tensor in graphc.open_checkpoint(path).items():
                if (found := BUNDLED.fullmatch(key)) and found[2].endswith("_out"):
                    LOG.warning("%s: %s is added behind a text encoder, which is not done", path, key)
                elif found:
                    groups.setdefault(found[1], {})[ENCODERS.get(found[2], found[2])] = np.asarray(tensor)
            try:
                return [Embedding.from_tensors(name, tensors) for name, tensors in groups.items()]
            except SettingError as error:
                raise SettingError(f"{path}: {error}") from error

        return self._bundles(path, read, path)


def _text(settings: Settings) -> str:
    """All that may name embeddings."""
    texts = [settings.prompt, settings.negative_prompt, settings.hires_prompt, settings.hires_negative_prompt]
    return "\n".join(filter(None, texts))
