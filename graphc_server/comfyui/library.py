"""The models that graphs name: files by ComfyUI's names, opened when a graph wants them, kept while the last graph has them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from graphc_images import ModelError, Settings
from graphc_images.folders import ModelFile
from graphc_images.from_files import Stamp, stamp
from graphc_images.inversions import Inversions
from graphc_images.models import ARCHITECTURES, Architecture, ImageModel, load_model
from graphc_images.models.alone import Place, load_autoencoder, load_encoders
from graphc_images.models.controls import CONTROLS, Control, ControlKind, load_control
from graphc_images.models.ip_adapters import ADAPTERS, AdapterKind, IPAdapter, PictureEncoder, load_ip_adapter
from graphc_images.models.model import ENGINES
from graphc_images.networks import Networks
from graphc_images.prompts.embeddings import Embedding
from graphc_images.upscalers.upscaler import Upscaler, load_upscaler
from graphc_server.comfyui.files import Files
from graphc_server.comfyui.values import LoraStrengths
from graphc_server.limits import Limits
from graphc_server.models import Models

FOLDERS = {
    "checkpoints": "checkpoint",
    "loras": "lora",
    "vae": "vae",
    "text_encoders": "text encoder",
    "clip": "text encoder",
    "diffusion_models": "diffusion model",
    "unet": "diffusion model",
    "embeddings": "embedding",
    "controlnet": "controlnet",
    "upscale_models": "upscaler",
    "vae_approx": "preview decoder",
    "clip_vision": "image encoder",
    "ipadapter": "ip-adapter",
    "inpaint": "inpainter",
}
"""ComfyUI's folders, and ours."""

Kept = TypeVar("Kept")


class Library:
    """Models, by ComfyUI's names of folders and files. Lists are for all; everything else is for the thread that paints alone."""

    def __init__(
        self,
        models: Models,
        limits: Limits,
        files: Files,
        *,
        engines: Path = ENGINES,
        architectures: Sequence[Architecture] = ARCHITECTURES,
        controls: Sequence[ControlKind] = CONTROLS,
        adapters: Sequence[AdapterKind] = ADAPTERS,
    ) -> None:
        """Other `engines`, `architectures`, and kinds of `controls` and `adapters` are for tests."""
        self.models, self.limits, self.files, self._kinds, self._adapters = models, limits, files, controls, adapters
        self._given = {"engines": engines, "architectures": architectures}
        self._open: dict[Hashable, Any] = {}
        self._used: set[Hashable] = set()

    def names(self, folder: str) -> list[str]:
        """The files of one of ComfyUI's folders, in it and with their endings. Raises ModelError for another folder."""
        if folder not in FOLDERS:
            raise ModelError(f"there is no folder {folder!r}")
        return sorted((_name(each) for each in self._files(folder)), key=str.lower)

    def path(self, folder: str, name: str) -> Path:
        """The file that is called so. Raises ModelError."""
        for each in self._files(folder):
            if _name(each) == name:
                return each.path.absolute()
        return self.models.folders.find(FOLDERS[folder], name).absolute()

    def stamp(self, folder: str, name: str) -> Stamp:
        """What is another once the file is. Nothing for one that is not there."""
        try:
            return stamp(self.path(folder, name))
        except ModelError:
            return ()

    def begin(self) -> None:
        """A graph begins: it has the memory of models for itself."""
        self._used = set()
        self.models.make_room()

    def end(self, held: Iterable[object]) -> None:
        """A graph is over: what it did not use is closed, but for models that are held."""
        ids = {id(each) for each in held}
        for key in self._open.keys() - self._used:
            if key in self._open and id(self._open[key]) not in ids:
                self._close(key)

    def close(self) -> None:
        """Close all."""
        for key in list(self._open):
            self._close(key)

    def checkpoint(self, folder: str, name: str) -> ImageModel:
        """The model of a file: a whole checkpoint, or a denoiser."""
        path = self.path(folder, name)
        return self._once(("model", path, *self.stamp(folder, name)), lambda: load_model(path, **self._loading()))

    def vae(self, name: str) -> ImageModel:
        """An autoencoder alone."""
        path = self.path("vae", name)
        return self._once(("vae", path, *self.stamp("vae", name)), lambda: load_autoencoder(path, self._place()))

    def encoders(self, names: Sequence[str], kind: str, fits: Callable[[Architecture], bool]) -> ImageModel:
        """Text encoders alone, of models of a kind; `fits` says which these are."""
        paths = [self.path("text_encoders", name) for name in names]
        stamps = [number for name in names for number in self.stamp("text_encoders", name)]
        return self._once(("text", kind, *paths, *stamps), lambda: load_encoders(paths, fits, self._place()))

    def upscaler(self, path: Path) -> Upscaler:
        """An upscaler."""
        return self._once(
            ("upscaler", path),
            lambda: load_upscaler(path, loaded=self.models.loads, threads=self.models.threads),
        )

    def control(self, model: ImageModel, path: Path) -> Control:
        """A ControlNet or adapter of a model. Raises ModelError if it is for others."""
        return self._once(("control", id(model), path), lambda: load_control(model, path, self._kinds))

    def ip_adapter(self, path: Path) -> IPAdapter:
        """An IP-Adapter."""
        return self._once(("ip-adapter", path, *stamp(path)), lambda: load_ip_adapter(path, self._adapters))

    def picture_encoder(self, path: Path) -> PictureEncoder:
        """CLIP's encoder of pictures, beside no model."""
        place = self._place()
        return self._once(
            ("vision", path, *stamp(path)), lambda: PictureEncoder(place.model(place.architectures[0], {}), path)
        )

    def put_on(self, model: ImageModel, loras: LoraStrengths, part: str) -> None:
        """Have a model's denoiser, or its text encoders (`part`), with these LoRAs; the other keeps those that it has."""
        networks, on = self._once(
            ("loras", id(model)), lambda: (Networks(model, self.models.folders), dict[str, Mapping[Path, float]]())
        )
        strengths: dict[Path, float] = {}
        for path, strength in loras:
            strengths[path] = strengths.get(path, 0.0) + strength
        if on.get(part, {}) == strengths:
            return
        on[part] = strengths
        paths = list(dict.fromkeys(path for each in on.values() for path in each))
        wanted = {
            path: {name: on.get(name, {}).get(path, 0.0) for name in ("text_encoder", "denoiser")} for path in paths
        }
        networks.put_on(wanted, set(wanted))

    def embeddings(self, text: str) -> tuple[Embedding, ...]:
        """Those that a text names. Raises SettingError for a file that is none."""
        return Inversions(self.models.folders).named(Settings(prompt=text, mode="comfyui"))

    def _files(self, folder: str) -> list[ModelFile]:
        kind = FOLDERS[folder]
        return [each for each in self.models.files(kind) if each.kind == kind]

    def _loading(self) -> dict[str, Any]:
        return {"loaded": self.models.loads, "threads": self.models.threads, **self._given}

    def _place(self) -> Place:
        return Place(**self._loading())

    def _once(self, key: Hashable, made: Callable[[], Kept]) -> Kept:
        """What was opened already, or is now."""
        self._used.add(key)
        if key not in self._open:
            self._open[key] = made()
        found: Kept = self._open[key]
        return found

    def _close(self, key: Hashable) -> None:
        opened = self._open.pop(key)
        if isinstance(opened, ImageModel):
            opened.close()
            for other in [each for each in self._open if isinstance(each, tuple) and each[1] == id(opened)]:
                self._close(other)
        elif isinstance(opened, Control | Upscaler | PictureEncoder):
            opened.close()


def _name(file: ModelFile) -> str:
    return f"{file.name}{file.path.suffix}"
