"""The models in the folders: listed at once, found by title, name, file or hash, and one of them loaded."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import graphc
from graphc_images import ModelError, ModelFolders, Pipeline, load
from graphc_images.detectors import Detectors
from graphc_images.folders import ModelFile
from graphc_images.from_files import stamp
from graphc_images.hashes import kept, known
from graphc_images.models import ARCHITECTURES, Architecture, Loaded, recognize
from graphc_images.upscalers import FILTERS, Enlargers

SHORT = 10
"""Digits of a hash in a model's title."""

FRESH = 1.0
"""Seconds for which the folders are taken to be as they were."""


@dataclass(frozen=True)
class Listed:
    """A model as lists have it; `sha256` is empty until somebody needed it."""

    file: ModelFile
    sha256: str

    @property
    def title(self) -> str:
        """As A1111 writes it: the file, and its hash once it is known."""
        name = f"{self.file.name}{self.file.path.suffix}"
        return f"{name} [{self.sha256[:SHORT]}]" if self.sha256 else name

    @property
    def names(self) -> tuple[str, ...]:
        """What it may be called."""
        stem = self.file.name.rpartition("/")[2]
        path = self.file.path
        return self.title, self.file.name, f"{self.file.name}{path.suffix}", stem, path.name, str(path)


class Models:
    """The folders, looked at again when a second has passed, and the pipeline that is loaded.

    `pipeline` and `free` are for the thread that paints alone; everything else is for all.
    """

    def __init__(
        self,
        folders: Sequence[str | os.PathLike[str]],
        *,
        device: str = "cpu",
        memory: str | int | None = None,
        threads: int | None = None,
    ) -> None:
        """`device` and `threads` compute, with at most `memory` for all models."""
        self.folders = ModelFolders(*folders, paths=False)
        self.device = device
        self._loads = Loaded(memory, device)
        self._threads = threads
        self.enlargers = Enlargers(self.folders, self._loads, threads)
        self.detectors = Detectors(self.folders)
        self._looked = time.monotonic()
        self._architectures: dict[tuple[Any, ...], Architecture] = {}
        self._loaded: tuple[tuple[Any, ...], Pipeline] | None = None
        self._chosen: Path | None = None

    def files(self, kind: str) -> list[ModelFile]:
        """The files of a kind, as they lie there now."""
        if time.monotonic() - self._looked > FRESH:
            self.refresh()
        return self.folders.of(kind)

    def upscalers(self) -> list[str]:
        """The names of all that makes pictures larger, A1111's "None" first."""
        return ["None", *(name for name in FILTERS if name != "None"), *(each.name for each in self.files("upscaler"))]

    def modules(self, names: Sequence[str], kinds: Sequence[str]) -> tuple[Path | None, list[Path]]:
        """The autoencoder and the text encoders of these names, as they lie there now. Raises ModelError."""
        self.files("vae")
        return self.folders.modules(names, kinds)

    def find_file(self, kind: str, name: str) -> ModelFile:
        """A file of a kind by its name. Raises ModelError."""
        found = self.files(kind)
        path = self.folders.find(kind, name)
        if not path.exists():  # it went since the folders were looked at
            self.refresh()
            found, path = self.folders.of(kind), self.folders.find(kind, name)
        return next(each for each in found if each.path == path)

    def refresh(self) -> None:
        """Look at the folders again."""
        self._looked = time.monotonic()
        self.folders.refresh()

    def listed(self) -> list[Listed]:
        """All models."""
        return [Listed(file, known(file.path.absolute())) for file in self.files("checkpoint")]

    def find(self, name: str) -> Listed:
        """A model by title, name, file or hash, of at least 4 digits. Raises ModelError.

        A hash that is not known is looked for among all files, which reads them.
        """
        plain = name.strip()
        for listed in (self.listed, self._looked_again):
            found = listed()
            for spelled in (str, str.lower):
                for each in found:
                    if spelled(plain) in map(spelled, each.names) and each.file.path.exists():
                        return each
        without = plain.partition(" [")[0]
        if without != plain:
            return self.find(without)
        if len(plain) >= 4 and set(plain.lower()) <= set("0123456789abcdef"):
            for each in found:
                if (hashed := self.with_hash(each)).sha256.startswith(plain.lower()):
                    return hashed
        names = ", ".join(each.file.name for each in found[:5]) or "none in the folders"
        raise ModelError(f"there is no model {name!r}; there is {names}")

    def with_hash(self, listed: Listed) -> Listed:
        """The same, with its hash. Raises ModelError for a file that cannot be read."""
        try:
            return Listed(listed.file, kept(listed.file.path.absolute()))
        except OSError as problem:
            raise ModelError(f"{listed.file.path}: it cannot be read: {problem.strerror}") from None

    def first(self) -> Listed:
        """The model for those who name none: the first of which it is known what it is, or if that is so of none, the first; the
        same from then on, as long as there is such a file. Raises ModelError if there is none."""
        found = self.listed()
        if not found:
            raise ModelError(f"there is no model in {', '.join(map(str, self.folders.folders))}")
        same = (each for each in found if each.file.path == self._chosen)
        known = (each for each in found if self._known(each))
        first = next(same, None) or next(known, found[0])
        self._chosen = first.file.path
        return first

    def _known(self, listed: Listed) -> bool:
        """True if a file is a model, and not damaged."""
        try:
            self.architecture(listed)
        except (ModelError, graphc.GraphcError):
            return False
        return True

    def architecture(self, listed: Listed) -> Architecture:
        """What kind of model a file is; kept until the file changes. Raises ModelError and graphc.GraphcError."""
        path = listed.file.path
        key = (path, *stamp(path))
        if key not in self._architectures:
            self._architectures[key] = recognize(graphc.open_checkpoint(path), ARCHITECTURES).architecture
        return self._architectures[key]

    def pipeline(self, name: str, vae: str | None, text: Sequence[str] = ()) -> Pipeline:
        """The pipeline of a model, with an autoencoder and text encoders by name; another that is loaded is freed before.

        Raises ModelError and graphc.GraphcError.
        """
        file = self.find(name).file
        path = file.path
        vae_path = None if vae is None else self.folders.find("vae", vae)
        texts = [self.folders.find("text encoder", each) for each in text]
        files = [each for each in (path, vae_path, *texts) if each is not None]
        key = path, vae_path, *((each, stamp(each)) for each in files)
        if self._loaded is None or self._loaded[0] != key:
            self.free()
            self._loaded = (
                key,
                load(
                    file.name,
                    folders=self.folders,
                    vae=vae_path,
                    text=texts or None,
                    loaded=self._loads,
                    threads=self._threads,
                ),
            )
        return self._loaded[1]

    @property
    def loads(self) -> Loaded:
        """What holds the engines of all models."""
        return self._loads

    @property
    def threads(self) -> int | None:
        """How many compute."""
        return self._threads

    def make_room(self) -> None:
        """Close the model that is loaded, if one is: others are wanted."""
        if self._loaded is not None:
            self.free()

    def free(self) -> None:
        """Give back the memory of the model that is loaded, if one is."""
        if self._loaded is not None:
            self._loaded[1].close()
            self._loaded = None
        self._loads.clear()
        self.detectors.close()

    @property
    def loaded(self) -> Path | None:
        """The file of the model that is loaded."""
        return None if self._loaded is None else self._loaded[0][0]

    def _looked_again(self) -> list[Listed]:
        self.refresh()
        return self.listed()
