"""Folders of models, as the applications for pictures lay them out, and files in them by name.

Understood are the folders of AUTOMATIC1111 and Forge (`models/Stable-diffusion`, `models/Lora`, `embeddings`, …), ComfyUI
(`models/checkpoints`, `models/loras`, …) and Easy Diffusion (`models/stable-diffusion`, …): the application's own folder, or
its `models`. In a folder that has none of these, every file of weights counts as a checkpoint.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from graphc_images.errors import ModelError

SHAPES = Path(__file__).parent / "shapes" / "shapes.safetensors"
"""The small model that comes with the package, alone in its folder (`examples/shapes` trains it)."""

WEIGHTS = (".safetensors", ".sft", ".ckpt", ".pt", ".pth", ".bin", ".gguf")

KINDS: dict[str, tuple[str, ...]] = {
    "checkpoint": ("stable-diffusion", "checkpoints"),
    "diffusion model": ("diffusion_models", "unet"),
    "text encoder": ("text_encoder", "text_encoders", "text-encoder", "clip"),
    "vae": ("vae",),
    "preview decoder": ("vae-approx", "vae_approx", "taesd"),
    "lora": ("lora", "loras", "lycoris"),
    "embedding": ("embeddings",),
    "controlnet": ("controlnet", "t2i_adapter"),
    "upscaler": ("esrgan", "realesrgan", "upscale_models"),
    "preprocessor": ("preprocessors", "controlnetpreprocessor", "annotators"),
    "image encoder": ("clip_vision",),
    "ip-adapter": ("ipadapter", "ip-adapter"),
    "inpainter": ("inpaint",),
    "wildcards": ("wildcards",),
}
"""What the folders of each kind are called by the applications, in small letters."""

ENDINGS = {
    "preprocessor": (".onnx",),
    "wildcards": (".txt",),
    "embedding": (*WEIGHTS, ".webp", ".png"),
    "inpainter": (*WEIGHTS, ".patch"),
}
"""Of the files of a kind, where they are not weights alone."""

SAME_NAMES = {"checkpoint": ("checkpoint", "diffusion model"), "controlnet": ("controlnet", "ip-adapter")}
"""Kinds that are looked for together: what is asked for as a model may be a checkpoint or its main part."""


@dataclass(frozen=True)
class ModelFile:
    """A file and what its folder says that it is. `name` is its path in that folder, without the ending."""

    kind: str
    name: str
    path: Path


class ModelFolders:
    """The files of one or several folders of models. Raises ModelError if a folder is not there.

    `paths` says whether a file elsewhere may be named by its path. It may not by what strangers send.
    """

    def __init__(self, *folders: str | os.PathLike[str], paths: bool = True) -> None:
        self.paths = paths
        self.folders = [Path(folder) for folder in folders]
        for folder in self.folders:
            if not folder.is_dir():
                raise ModelError(f"{folder}: there is no such folder of models")

    @cached_property
    def files(self) -> list[ModelFile]:
        """Every file, by kind and name. What is in several folders under one name counts where it comes first."""
        found: dict[tuple[str, str], ModelFile] = {}
        for folder in self.folders:
            for file in _files_of(folder):
                found.setdefault((file.kind, file.name), file)
        return sorted(found.values(), key=lambda file: (list(KINDS).index(file.kind), file.name.lower()))

    def refresh(self) -> None:
        """Look at the folders again when they are next asked for."""
        self.__dict__.pop("files", None)

    def of(self, kind: str) -> list[ModelFile]:
        """The files of a kind."""
        return [file for file in self.files if file.kind in SAME_NAMES.get(kind, (kind,))]

    def modules(
        self, names: Iterable[str], kinds: Sequence[str] = ("vae", "text encoder")
    ) -> tuple[Path | None, list[Path]]:
        """An autoencoder, if one is named, and text encoders, by names of one list, as Forge has them; a path is that of an
        autoencoder. Raises ModelError."""
        found: dict[str, list[Path]] = {"vae": [], "text encoder": []}
        for name in names:
            kind = next((kind for kind in kinds if self._is_path(kind, name) or self._named(kind, name)), None)
            if kind is None:
                what = " or ".join("autoencoder" if kind == "vae" else kind for kind in kinds)
                raise ModelError(f"there is no {what} {name[:60]!r}")
            found[kind].append(self.find(kind, name))
        autoencoders = list(dict.fromkeys(found["vae"]))
        if len(autoencoders) > 1:
            several = ", ".join(path.name for path in autoencoders)
            raise ModelError(f"one autoencoder can be given, and not {several}")
        return next(iter(autoencoders), None), found["text encoder"]

    def place(self, kind: str) -> Path | None:
        """The first folder that is for files of a kind; None if there is none."""
        return next(
            (place for folder in self.folders for each, place in _folders_of_kinds(folder) if each == kind), None
        )

    def find(self, kind: str, name: str) -> Path:
        """The file that is called so: a path that exists, or a name in the folders, with or without its ending or its folder, in
        large or small letters.

        Raises ModelError that says which names come near, or that several fit.
        """
        if self._is_path(kind, name):
            return Path(name)
        fitting = self._named(kind, name)
        if not fitting:
            raise ModelError(f"there is no {kind} {name!r}{_nearest(name, self.of(kind))}")
        if len(fitting) > 1:
            several = ", ".join(file.name for file in fitting)
            raise ModelError(f"{kind} {name!r} may be any of {several}: give its folder too")
        return fitting[0].path

    def _is_path(self, kind: str, name: str) -> bool:
        """True if a file elsewhere is named, or a folder where a model may be one."""
        return self.paths and (Path(name).is_file() or (kind == "checkpoint" and Path(name).is_dir()))

    def _named(self, kind: str, name: str) -> list[ModelFile]:
        """The files of a kind that are called so: as the name is spelled, or in large or small letters."""
        plain = _without_ending(name)
        for spelled in (str, str.lower):
            for part in (_whole, _last):
                if fitting := [file for file in self.of(kind) if spelled(plain) == spelled(part(file))]:
                    return fitting
        return []


def _files_of(folder: Path) -> Iterator[ModelFile]:
    sorted_folders = list(_folders_of_kinds(folder))
    for kind, place in sorted_folders:
        yield from _files_in(kind, place)
    if not sorted_folders:
        for file in _files_in("checkpoint", folder):
            if file.path.parent == folder:
                yield file


def _folders_of_kinds(folder: Path) -> Iterator[tuple[str, Path]]:
    kinds = {name: kind for kind, names in KINDS.items() for name in names}
    for root in (folder / "models", folder):
        if root.is_dir():
            for place in sorted(root.iterdir()):
                if place.name.lower() in kinds and place.is_dir():
                    yield kinds[place.name.lower()], place


def _files_in(kind: str, place: Path) -> Iterator[ModelFile]:
    endings = ENDINGS.get(kind, WEIGHTS)
    seen = set()
    for current, below, names in os.walk(place, followlinks=True):
        here = os.path.realpath(current)
        below[:] = sorted(name for name in below if not name.startswith(".")) if here not in seen else []
        if here in seen:  # a link that leads back up
            continue
        seen.add(here)
        for name in sorted(names):
            if name.lower().endswith(endings) and not name.startswith("."):
                path = Path(current) / name
                yield ModelFile(kind, path.relative_to(place).with_suffix("").as_posix(), path)


def _whole(file: ModelFile) -> str:
    return file.name


def _last(file: ModelFile) -> str:
    return file.name.rpartition("/")[2]


def called(name: str) -> str:
    """What a file is called in a prompt, by its path or name: no folder, and no ending of files of weights; other dots stay."""
    return _without_ending(name).rpartition("/")[2]


def _without_ending(name: str) -> str:
    plain = name.replace("\\", "/")
    for ending in {ending for each in (WEIGHTS, *ENDINGS.values()) for ending in each}:
        if plain.lower().endswith(ending):
            return plain[: -len(ending)]
    return plain


def _nearest(name: str, files: Iterable[ModelFile]) -> str:
    names = [file.name for file in files]
    near = difflib.get_close_matches(_without_ending(name), names, n=3, cutoff=0.4) or names[:3]
    return f"; there is {', '.join(near)}" if near else ", and the folders have none of this kind"
