"""Embeddings that prompts name: found in the folders of models, read once."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
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


class Inversions:
    """The embeddings of textual inversion that there are."""

    def __init__(self, folders: ModelFolders | None) -> None:
        self.folders = folders
        self._read: FromFiles[Embedding] = FromFiles()

    def named(self, settings: Settings) -> tuple[Embedding, ...]:
        """Those whose names stand somewhere in the prompts. In ComfyUI's mode the log names those that there are not.

        Raises SettingError for a file that is not an embedding, and CheckpointError for a damaged one: also for one of the
        settings that no prompt names.
        """
        text = _text(settings)
        for name, file in settings.embeddings.items():
            self._embedding(name, Path(file))
        found = tuple(
            self._embedding(name, path) for name, path in self._files(settings.embeddings).items() if name in text
        )
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
        text, files = _text(settings), self._files(settings.embeddings)
        return {name: path for name, path in files.items() if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)}

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


def _text(settings: Settings) -> str:
    """All that may name embeddings."""
    texts = [settings.prompt, settings.negative_prompt, settings.hires_prompt, settings.hires_negative_prompt]
    return "\n".join(filter(None, texts))
