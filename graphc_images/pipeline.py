"""From words to pictures: what `load` returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from graphc_images.conditions import Conditioner, needed
from graphc_images.describing import comfyui_graph, described
from graphc_images.errors import SettingError
from graphc_images.folders import SHAPES, ModelFolders
from graphc_images.hashes import Hashes, labels
from graphc_images.inversions import Inversions
from graphc_images.latent_scaling import LATENT_UPSCALERS, scaled_latent
from graphc_images.models import ImageModel, Tiles, load_model
from graphc_images.networks import Networks
from graphc_images.others import Modules, Others, Painter
from graphc_images.painting import paint
from graphc_images.pictures.arrays import flatten, to_array, to_picture
from graphc_images.pictures.colour import match_colours
from graphc_images.pictures.files import Notes, save_picture
from graphc_images.pictures.sizes import Resizer, larger_by
from graphc_images.resolving import check_names, check_size, resolved, unit_of
from graphc_images.second_pass import covering, enlarged, second
from graphc_images.settings import Settings
from graphc_images.starting import Start, again_of, latent_of, start_of
from graphc_images.steering import Controls, Steering
from graphc_images.upscalers.choosing import Enlargers

SEAMLESS = {"off": "", "on": "xy", "x": "x", "y": "y"}
"""The axes along which pictures are seamless, by the setting `tiling`."""


@dataclass(frozen=True)
class Picture:
    """A finished picture, the seed that makes it again, the text that says how it was made, and the latent that it is of
    [channels, height, width].

    `settings` are all that it was made with, and `model` the model's name, the hash of its file, and the autoencoder's name.
    """

    image: Image.Image
    seed: int
    parameters: str
    latent: np.ndarray
    settings: Settings
    model: tuple[str, str, str]
    mask: Image.Image | None = None
    """Where it was painted, if that was a part of a picture: white there, with its softness."""
    painted: Image.Image | None = None
    """What was painted there, transparent elsewhere."""

    def save(self, path: str | os.PathLike[str], *, quality: int = 80, graph: bool = False) -> None:
        """Write it as its ending says (.png, .jpg, .webp), with the text, and if `graph` with a graph that makes it in ComfyUI.

        `quality` is JPEG's and WebP's. Raises ImageError where it cannot be written.
        """
        graphs = {"prompt": comfyui_graph(self.settings, self.model[0])} if graph else {}
        save_picture(self.image, Path(path), Notes(self.parameters, graphs), quality=quality)


class Pictures(tuple[Picture, ...]):
    """All pictures that were asked for at once."""

    def save(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write them: one under this name, several with numbers behind it. The paths are returned."""
        whole = Path(path)
        paths = (
            [whole]
            if len(self) == 1
            else [whole.with_stem(f"{whole.stem}-{place}") for place in range(1, len(self) + 1)]
        )
        for each, place in zip(self, paths, strict=True):
            each.save(place)
        return paths


NONE = Pictures()

Wish = Literal["go on", "skip", "stop"]
"""What is asked for after a step: `skip` finishes the batch as it is, and goes on to the next; `stop` does not go on."""

PreviewBy = Literal["rough", "tiny", "full"]
"""What makes a picture of a latent for a moment: one matrix, the tiny autoencoder where there is one, or the model's own."""


def go_on() -> Wish:
    """The wish of those who have none."""
    return "go on"


@dataclass(frozen=True)
class Progress:
    """Where the painting is: `step` of `steps` is done, of the pass `turn` of `turns`, of a batch. `pictures` are there when the
    batch is finished.

    `latent` [batch, channels, height, width] is what the model takes the pictures to be.
    """

    batch: int
    batches: int
    step: int
    steps: int
    latent: np.ndarray
    pipeline: Pipeline
    pictures: Pictures = NONE
    turn: int = 1
    turns: int = 1
    hints: tuple[Image.Image, ...] = ()
    """What controls looked at, when the batch is finished."""

    @property
    def share(self) -> float:
        """How much of the batch's steps is done, from 0 to 1."""
        return (self.turn - 1 + self.step / max(self.steps, 1)) / self.turns

    def previews(self, by: PreviewBy = "tiny") -> list[Image.Image]:
        """The pictures so far: rough ones are of a pixel for each of the latent's."""
        model = self.pipeline.model
        decode = {"rough": model.architecture.latent.preview, "tiny": model.decode_preview, "full": model.decode_latent}
        return [to_picture(each) for each in decode[by](self.latent)]


@dataclass(frozen=True)
class Pass:
    """One pass over a batch: its settings, and the controls that steer it."""

    settings: Settings
    steering: Steering | None


class Pipeline:
    """A model that paints.

    `pipeline("a red circle", steps=20).save("circle.png")`; settings are those of `Settings`. A pipeline makes one picture, or
    batch, at a time.
    """

    def __init__(
        self,
        model: ImageModel,
        name: str,
        folders: ModelFolders | None = None,
        *,
        hashes: bool = True,
        modules: Modules | None = None,
    ) -> None:
        """With `hashes`, pictures say those of the files that they were made with; they are computed meanwhile. `modules` are the
        files that the model has in place of its checkpoint's, for models that go on."""
        self.model, self.name = model, name
        self.hashes = Hashes() if hashes else None
        self.conditioner = Conditioner(model)
        self.networks = Networks(model, folders)
        self.others = Others(model, folders, modules or Modules())
        self.inversions = Inversions(folders, lambda: self.networks.files.values())
        self.enlargers = Enlargers(folders, model.loaded, model.threads)
        self.folders = folders
        self.controls = Controls(model, folders)

    def __call__(
        self, prompt: str = "", *, on_step: Callable[[Progress], None] | None = None, **settings: Any
    ) -> Pictures:
        """The pictures; `on_step` is called after each step. Raises ImageError."""
        found: list[Picture] = []
        for progress in self.steps(prompt, **settings):
            if on_step is not None:
                on_step(progress)
            found += progress.pictures
        return Pictures(found)

    def close(self) -> None:
        """Free what is loaded; it is loaded again if it is needed."""
        self.model.close()
        self.others.close()

    def steps(self, prompt: str = "", **settings: Any) -> Iterator[Progress]:
        """The same step by step. Whoever stops asking for more has what was finished until then."""
        return self.paint(Settings.of(prompt, **settings))

    def resolved(self, asked: Settings) -> Settings:
        """The settings with the model's usual values and seeds by chance. Raises SettingError for what cannot be done."""
        found = resolved(asked, self.model.architecture)
        larger = enlarged(found, unit_of(self.model.architecture))
        if larger is not None:
            again = second(found, *larger)
            check_size(self.model.architecture, *larger)
            check_names(again)
            if again.hires_upscaler not in LATENT_UPSCALERS:
                self._enlarger("hires_upscaler", again)
        if found.resize_upscaler != "None":
            self._enlarger("resize_upscaler", found)
        return found

    def _enlarger(self, setting: str, settings: Settings) -> Resizer:
        """What makes pictures larger. Raises SettingError that names the setting, where there is none of its name."""
        try:
            return self.enlargers(getattr(settings, setting), settings.upscale_tile, settings.upscale_overlap)
        except SettingError as error:
            raise SettingError(f"{setting}: {error}") from error

    def paint(self, asked: Settings, wish: Callable[[], Wish] = go_on) -> Iterator[Progress]:
        """The steps of all batches. Raises ImageError before the first, for what cannot be done.

        `wish` is asked after each step. Where it says that a batch is to be finished as it is, its pictures are what the model
        takes them to be by then.
        """
        self.model.require("denoiser", "vae", *needed(self.model))
        self.model.tiles, self.model.seamless = Tiles(asked.vae_tiling, asked.vae_tile), SEAMLESS[asked.tiling]
        self.networks.files = {}
        settings = self.controls.resolved(self.networks.applied(self.resolved(asked)))
        self.inversions.check(settings, self.model.architecture.text)
        if self.hashes is not None:
            self.hashes.begin(Path(self.model.components["denoiser"].file))
        size = enlarged(settings, unit_of(self.model.architecture))
        larger = None if size is None else second(settings, *size)
        if larger is not None:
            self.networks.check(larger)
        steered = self.controls.steerings(settings, larger)
        passes = [Pass(each, steering) for each, steering in zip((settings, larger), steered, strict=True) if each]
        for batch in range(settings.batches):
            yield from self._batch(passes, batch, wish)
            if wish() == "stop":
                return

    def _batch(self, passes: Sequence[Pass], batch: int, wish: Callable[[], Wish]) -> Iterator[Progress]:
        settings = passes[0].settings
        varied = bool(settings.subseed_strength)
        numbers = [batch * settings.batch_size + place for place in range(settings.batch_size)]
        seeds = [settings.seed + (0 if varied else number) for number in numbers]
        subseeds = [settings.subseed + number for number in numbers]
        by = larger_by(self._enlarger("resize_upscaler", settings))
        start = start_of(self.model, settings, seeds, subseeds, by)
        turns, painter = len(passes), Painter(self.conditioner, self.networks)
        refiner = self._refiner(settings)
        if settings.firstpass_image is not None and turns > 1:
            latent = np.repeat(latent_of(self.model, settings.firstpass_image), settings.batch_size, 0)
        else:
            first = refiner if turns == 1 or settings.hires_refiner != "second pass" else None
            self._put_on(settings, painter, first)
            latent = yield from self._pass(passes[0], start, batch, wish, painter, turns=turns, refiner=first)
        last = passes[0]
        if start.region is not None and settings.mode == "a1111":  # ComfyUI's last estimate was blended already
            latent = start.region.finished(latent)
        for again in passes[1:]:
            if wish() == "go on":
                painter = self._second_painter(settings) or painter
                larger, last = self._enlarge(latent, again.settings, painter.model), again
                refiner = refiner if settings.hires_refiner != "first pass" else None
                self._put_on(again.settings, painter, refiner, settings if settings.hires_same_networks else None)
                canvas = replace(again_of(painter.model, again.settings, seeds, subseeds), latent=larger)
                latent = yield from self._pass(
                    again, Start(canvas), batch, wish, painter, settings.steps, turns=turns, refiner=refiner
                )
        pictures = self._finished(latent, start, settings, seeds, subseeds, last.steering, painter.model)
        hints = tuple(hint for each in passes if each.steering is not None for hint in each.steering.hints)
        yield Progress(batch, settings.batches, 1, 1, latent, self, pictures, turns, turns, hints)

    def _pass(
        self,
        way: Pass,
        start: Start,
        batch: int,
        wish: Callable[[], Wish],
        painter: Painter,
        hires_of: int | None = None,
        *,
        turns: int = 1,
        refiner: Painter | None = None,
    ) -> Generator[Progress, None, np.ndarray]:
        """The steps of one pass; its result is the latent."""
        settings, canvas = way.settings, start.canvas
        latent = np.zeros(canvas.shape, np.float32) if canvas.latent is None else canvas.latent
        turn = 1 if hires_of is None else 2
        wrapped = None if start.region is None else start.region.wrap
        named = self.inversions.named(settings)
        after = None if refiner is None else refiner.conditioner
        for stroke in paint(painter.conditioner, settings, canvas, wrapped, hires_of, named, after, way.steering):
            latent = stroke.latent
            yield Progress(
                batch, settings.batches, stroke.done, stroke.steps, stroke.estimate, self, turn=turn, turns=turns
            )
            if wish() != "go on":
                return stroke.estimate
        return latent

    def _refiner(self, settings: Settings) -> Painter | None:
        """The model that goes on at `refiner_switch_at`, loaded when it is first named. Raises ImageError."""
        if settings.refiner is None or settings.refiner_switch_at >= 1:
            return None
        return self.others("refiner", settings.refiner, ())

    def _second_painter(self, settings: Settings) -> Painter | None:
        """The model of the second pass, if it is another than the first's. Raises ImageError."""
        name, modules = settings.hires_checkpoint, settings.hires_modules
        if name is None and (modules is None or (not modules and self.others.modules == Modules())):
            return None
        return self.others("hires_modules" if name is None else "hires_checkpoint", name, modules)

    def _put_on(
        self, settings: Settings, painter: Painter, refiner: Painter | None, words: Settings | None = None
    ) -> None:
        """Put the LoRAs that a pass names on its models; on text encoders those of other settings, if there are `words`."""
        for each in (painter, refiner):
            if each is not None:
                each.networks.applied(settings, words, sparing=each.networks is not self.networks)

    def _enlarge(self, latent: np.ndarray, settings: Settings, again: ImageModel) -> np.ndarray:
        """The latents of a first pass at the size of a second one, for its model."""
        assert settings.width is not None
        assert settings.height is not None
        unit = self.model.architecture.latent.pixels
        check_size(self.model.architecture, settings.width, settings.height)
        old = latent.shape[3] * unit, latent.shape[2] * unit
        cover = covering(old, (settings.width, settings.height), unit)
        width, height = cover.size
        if settings.hires_upscaler in LATENT_UPSCALERS:
            return cover.trimmed(scaled_latent(latent, height // unit, width // unit, settings.hires_upscaler))
        by, given = self._enlarger("hires_upscaler", settings), settings.firstpass_image
        decoded = (
            [to_picture(each) for each in self.model.decode_latent(latent)]
            if given is None
            else [flatten(given)] * len(latent)
        )
        pixels = [to_array(by(each, width, height)) for each in decoded]
        return cover.trimmed(again.encode_image(np.stack(pixels)))

    def _finished(
        self,
        latent: np.ndarray,
        start: Start,
        settings: Settings,
        seeds: Sequence[int],
        subseeds: Sequence[int],
        steering: Steering | None,
        painter: ImageModel,
    ) -> Pictures:
        found = []
        found_hashes = self._hashes(settings)
        vae = Path(str(found_hashes.get("VAE") or "")).stem
        made_by = self.name, str(found_hashes.get("Model hash") or ""), vae
        for place, seed in enumerate(seeds):
            image = to_picture(painter.decode_latent(latent[place : place + 1])[0])
            if start.colours_of is not None:
                image = match_colours(image, start.colours_of)
            image = image if steering is None else steering.finished(image)
            overlay = start.overlay(image, latent[place], place)
            parts = (None, None) if overlay is None else (overlay.mask, overlay.composite(image))
            image = image if overlay is None or not settings.overlay else overlay.over(image)
            own = replace(settings, seed=seed, subseed=subseeds[place], batches=1, batch_size=1)
            text = described(own, self.name, found_hashes)
            found.append(Picture(image, seed, text, latent[place], own, made_by, *parts))
        return Pictures(found)

    def _hashes(self, settings: Settings) -> dict[str, object]:
        """What the text says of the files; it waits for their hashes."""
        if self.hashes is None:
            return {}
        files = {name: Path(self.model.components[name].file) for name in ("denoiser", "vae")}
        vae = None if files["vae"] == files["denoiser"] else files["vae"]
        return labels(self.hashes, files["denoiser"], vae, self.networks.files, self.inversions.files(settings))


def load(
    model: str | os.PathLike[str] | None = None,
    *,
    folders: str | os.PathLike[str] | ModelFolders | None = None,
    hashes: bool = True,
    **settings: Any,
) -> Pipeline:
    """A pipeline of a checkpoint: a file, or its name in `folders` (see `folders.py`). Without one, it is that of the small model
    that comes with the package, which paints coloured shapes.

    With `hashes`, pictures say those of the files that they are made with. Further settings are those of `load_model`: files, or
    names in the folders, for the autoencoder (`vae`), the text encoders (`text`) and the tiny one (`tiny`), device, threads,
    memory, types of weights. Raises ImageError and graphc.GraphcError; nothing is loaded yet but what says which model it is.
    """
    known = folders if isinstance(folders, ModelFolders) or folders is None else ModelFolders(folders)
    path = SHAPES if model is None else Path(model) if known is None else known.find("checkpoint", str(model))
    for name, kind in (("vae", "vae"), ("tiny", "preview decoder")):
        if settings.get(name) is not None:
            settings[name] = _found(kind, settings[name], known)
    given = settings.pop("text", None) or {}
    text: Mapping[str, Any] | list[Any]
    if isinstance(given, Mapping):
        text = {name: _found("text encoder", file, known) for name, file in given.items() if file is not None}
    else:
        text = [_found("text encoder", file, known) for file in given]
    modules = Modules(settings.get("vae"), text or ())
    return Pipeline(load_model(path, text=text, **settings), path.stem, known, hashes=hashes, modules=modules)


def _found(kind: str, name: Any, known: ModelFolders | None) -> Any:
    """A file of a part of a model, by its path or its name in the folders."""
    return known.find(kind, name) if known is not None and isinstance(name, str) else name
