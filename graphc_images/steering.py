"""Controls of a picture at work: what is added to the U-Net in each step, and what is kept of the picture that they follow.

Source: Mikubill's sd-webui-controlnet (scripts/hook.py); ComfyUI's comfy/controlnet.py for when a control counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

import graphc
from graphc_images.control_units import LOOKS, ControlUnit
from graphc_images.detectors import Detectors
from graphc_images.errors import ModelError, SettingError
from graphc_images.folders import ModelFolders
from graphc_images.from_files import FromFiles
from graphc_images.image_prompts import ImagePrompt, Looking, by_times, image_prompt
from graphc_images.masking import box_alone, prepared_mask
from graphc_images.models import Conditioning, ImageModel
from graphc_images.models.controls import CONTROLS, Control, ControlKind, Look, load_control
from graphc_images.models.denoisers import WHOLE
from graphc_images.models.ip_adapters import (
    ADAPTERS,
    CLIPS,
    AdapterKind,
    IPAdapter,
    PictureEncoder,
    encoder_in,
    is_ip_adapter,
    load_ip_adapter,
    nothing,
    prepared,
)
from graphc_images.pictures.arrays import flatten
from graphc_images.pictures.colour import lab_to_rgb, rgb_to_lab
from graphc_images.pictures.filters import levels
from graphc_images.pictures.hints import (
    PREPROCESSORS,
    RESOLUTION,
    FitMode,
    as_array,
    fitted,
    pixel_perfect,
    preprocessor_of,
    within,
)
from graphc_images.pictures.masks import bilinear
from graphc_images.pictures.sizes import ResizeMode, pixel_mode, resize
from graphc_images.sampling.guided import Weakening
from graphc_images.sampling.plan import Plan
from graphc_images.sampling.samplers import PairDenoiser
from graphc_images.settings import Settings

SOFT = 0.825
"""Each residual further from the middle counts this much less, where not the control but the prompt is to lead."""

SOFT_FEATURES = (0.25, 0.62, 0.825, 1.0)
"""The same of an adapter's."""

RESIZE_MODES: Mapping[ResizeMode, FitMode] = {
    "stretch": "Just Resize",
    "crop": "Crop and Resize",
    "fill": "Resize and Fill",
}
FITS = {fit: mode for mode, fit in RESIZE_MODES.items()}


@dataclass(frozen=True)
class Steer:
    """A control, what it was told of its picture, and its unit.

    `scales` are for its residuals, or an adapter's features; `hint` [height, width, 3 or 4] are the pixels that it looks at, made
    by the preprocessor `module`; `region` [height, width] is 1 where it counts. If `pooled`, it adds the mean of all places.
    `again` is for a second pass, over a larger picture.
    """

    unit: ControlUnit
    control: Control
    look: Look
    scales: tuple[float, ...]
    hint: np.ndarray
    module: str
    pooled: bool = False
    region: np.ndarray | None = None
    again: bool = False

    def added(self, x: np.ndarray, time: np.ndarray, given: Conditioning) -> list[np.ndarray]:
        """Its residuals or features, by its weights."""
        adapter = self.control.kind.adapter
        found: Sequence[np.ndarray] = (
            self.look.features if adapter else self.control.residuals(self.look, x, time, given)
        )
        for_prompt = self.unit.control_mode == "ControlNet is more important" or self.pooled
        if for_prompt and given.positive is not None:
            rows = np.broadcast_to(given.positive, (len(x),))[:, None, None, None]
            found = [each * rows for each in found]
        found = [each * np.float32(scale) for each, scale in zip(found, self.scales, strict=True)]
        if self.region is not None:
            found = [each * bilinear(self.region, *each.shape[2:]) for each in found]
        if self.pooled:
            found = [np.broadcast_to(each.mean((2, 3), keepdims=True), each.shape) for each in found]
        return found


class Steering:
    """The controls of a pass, and the pictures that it looks at. `step` is the number of steps that are done."""

    def __init__(self, model: ImageModel, steers: Sequence[Steer], prompts: Sequence[ImagePrompt] = ()) -> None:
        self.model, self.steers, self.looking = model, steers, Looking(prompts)
        self.step = 0
        self.counts: Callable[[float, float, float], bool] = lambda start, end, time: True

    def begin(self, way: Plan) -> Steering:
        """Itself, at the beginning of a pass. Whether a control counts depends on the share of the steps that are done; for
        ComfyUI on the model's times."""
        self.step, steps = 0, way.steps

        def by_steps(start: float, end: float, time: float) -> bool:
            return start <= self.step / steps <= end

        self.counts = (lambda start, end, time: by_times(time, start, end)) if way.mode == "comfyui" else by_steps
        return self

    def denoise(
        self, x: np.ndarray, time: float | np.ndarray, conditioning: Conditioning, weakening: Weakening = WHOLE
    ) -> np.ndarray:
        """What the model predicts with what all controls add together; see `ImageModel.denoise`."""
        times = np.ascontiguousarray(np.broadcast_to(np.asarray(time, np.float32), (len(x),)))
        now, told = float(times[0]), conditioning
        if self.steers:
            told = self._added(x, times, conditioning)
        if self.looking.prompts:
            told = self.looking.told(x, told, [self.counts(each.start, each.end, now) for each in self.looking.prompts])
        return self.model.denoise(x, time, told, weakening)

    def _added(self, x: np.ndarray, times: np.ndarray, conditioning: Conditioning) -> Conditioning:
        """What is told, with what all controls that count now add."""
        residuals, features = (
            [np.zeros((len(x), *shape), np.float32) for shape in shapes]
            for shapes in self.model.added_shapes(*x.shape[2:])
        )
        for steer in self.steers:
            if self.counts(steer.unit.guidance_start, steer.unit.guidance_end, float(times[0])):
                into = features if steer.control.kind.adapter else residuals
                for place, each in enumerate(steer.added(x, times, conditioning)):
                    into[place] += each
        return replace(conditioning, residuals=tuple(residuals), features=tuple(features))

    def wrap(self, model: PairDenoiser) -> PairDenoiser:
        """A denoiser that keeps what modules say of the picture's colours, or of what is not to be made up."""
        for steer in self.steers:
            if steer.module == "inpaint_only" and steer.hint.shape[-1] == 4:
                model = Kept(model, self._latent(steer), _latent_mask(steer.hint[..., 3]), _share(steer))
            if steer.module == "tile_colorfix":
                radius = int(within(PREPROCESSORS[steer.module].a, steer.unit.threshold_a))
                model = Coloured(model, self._latent(steer), radius * (2 if steer.again else 1), _share(steer))
        return model

    def finished(self, image: Image.Image) -> Image.Image:
        """A picture with what modules keep of theirs, pixel by pixel."""
        for steer in self.steers:
            if steer.hint.shape[1::-1] == image.size and steer.module in FINISHED:
                image = FINISHED[steer.module](image, steer.hint)
        return image

    @property
    def hints(self) -> list[Image.Image]:
        """What the controls look at, of those whose maps are wanted."""
        steers = [steer for steer in self.steers if steer.unit.save_detected_map]
        return [Image.fromarray(steer.hint[..., :3]) for steer in steers]

    def _latent(self, steer: Steer) -> np.ndarray:
        pixels = steer.hint[..., :3].astype(np.float32).transpose(2, 0, 1) / np.float32(127.5) - 1
        return self.model.encode_image(pixels[None])


def _share(steer: Steer) -> float:
    return min(max(steer.unit.weight, 0.0), 1.0)


@dataclass(frozen=True)
class Kept:
    """A denoiser that keeps a latent where a mask is 0."""

    model: PairDenoiser
    latent: np.ndarray
    mask: np.ndarray
    share: float

    def __call__(self, x: np.ndarray, sigma: float) -> np.ndarray:
        """The estimate."""
        return self._mixed(self.model(x, sigma))

    def pair(self, x: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
        """Both estimates."""
        denoised, negative = self.model.pair(x, sigma)
        return self._mixed(denoised), self._mixed(negative)

    def _mixed(self, denoised: np.ndarray) -> np.ndarray:
        kept = denoised * self.mask + self.latent * (1 - self.mask)
        return np.asarray(kept * self.share + denoised * (1 - self.share), np.float32)


@dataclass(frozen=True)
class Coloured:
    """A denoiser whose estimates have the coarse colours of a latent: means over squares of 2 * radius + 1."""

    model: PairDenoiser
    latent: np.ndarray
    radius: int
    share: float

    def __call__(self, x: np.ndarray, sigma: float) -> np.ndarray:
        """The estimate."""
        return self._mixed(self.model(x, sigma))

    def pair(self, x: np.ndarray, sigma: float) -> tuple[np.ndarray, np.ndarray]:
        """Both estimates."""
        denoised, negative = self.model.pair(x, sigma)
        return self._mixed(denoised), self._mixed(negative)

    def _mixed(self, denoised: np.ndarray) -> np.ndarray:
        coarse = square_means(self.latent, self.radius) - square_means(denoised, self.radius)
        return np.asarray(denoised + self.share * coarse, np.float32)


def square_means(latent: np.ndarray, radius: int) -> np.ndarray:
    """Each number as the mean of the square around it; edges are repeated."""
    padded = np.pad(latent.astype(np.float64), [(0, 0), (0, 0), (radius, radius), (radius, radius)], mode="edge")
    size = 2 * radius + 1
    for axis in (2, 3):
        sums = np.cumsum(padded, axis)
        sums = np.concatenate([np.zeros_like(sums.take([0], axis)), sums], axis)
        count = sums.shape[axis]
        padded = (sums.take(range(size, count), axis) - sums.take(range(count - size), axis)) / size
    return padded


def _latent_mask(mask: np.ndarray) -> np.ndarray:
    """1 for a latent pixel of which anything, or of its surroundings of a pixel, is masked: squares of 10 pixels every 8."""
    padded = np.pad(mask.astype(np.float32) / 255, 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (10, 10))[::8, ::8]
    return np.asarray(windows.max((2, 3))[None, None])


def _put_over(image: Image.Image, hint: np.ndarray) -> Image.Image:
    """The hint's pixels outside of its mask, with an edge that is larger and soft."""
    size = 7
    mask = np.pad(hint[..., 3].astype(np.float32) / 255, size // 2)
    mask = np.lib.stride_tricks.sliding_window_view(mask, (size, size)).max((2, 3))
    soft = np.lib.stride_tricks.sliding_window_view(np.pad(mask, size // 2, mode="reflect"), (size, size)).mean((2, 3))
    soft = soft[..., None]
    return Image.fromarray(levels(np.asarray(image, np.float32) * soft + hint[..., :3] * (1 - soft)))


def _with_lightness(image: Image.Image, hint: np.ndarray) -> Image.Image:
    lab = rgb_to_lab(np.asarray(image))
    lab[..., 0] = hint[..., 0]
    return Image.fromarray(lab_to_rgb(lab))


def _with_intensity(image: Image.Image, hint: np.ndarray) -> Image.Image:
    found = np.asarray(image.convert("HSV")).copy()
    found[..., 2] = hint[..., 0]
    return Image.fromarray(found, "HSV").convert("RGB")


FINISHED: Mapping[str, Callable[[Image.Image, np.ndarray], Image.Image]] = {
    "inpaint_only": _put_over,
    "recolor_luminance": _with_lightness,
    "recolor_intensity": _with_intensity,
}
"""By the module that keeps something of its picture."""


class Controls:
    """The controls of a model, by file, the preprocessors that are ONNX files, and the encoders of pictures for IP-Adapters."""

    def __init__(
        self,
        model: ImageModel,
        folders: ModelFolders | None,
        kinds: Sequence[ControlKind] = CONTROLS,
        adapters: Sequence[AdapterKind] = ADAPTERS,
    ) -> None:
        self.model, self.folders, self.kinds, self.adapters = model, folders, kinds, adapters
        self.detectors = Detectors(folders)
        self._known: FromFiles[Control | IPAdapter] = FromFiles(_close)
        self._encoders: FromFiles[PictureEncoder] = FromFiles(PictureEncoder.close, most=1)

    def path(self, name: str | os.PathLike[str]) -> Path:
        """The file of a control. Raises ModelError if there is none."""
        if self.folders is not None:
            return self.folders.find("controlnet", os.fspath(name))
        if not Path(name).is_file():
            raise ModelError(
                f"there is no ControlNet {str(name)!r}: it is not a file, and no folder of models was given"
            )
        return Path(name)

    def resolved(self, settings: Settings) -> Settings:
        """Settings whose controls have their files and pictures; what was used before and is not now is freed.

        Raises ModelError for a file that is not there.
        """
        given = settings.control_image
        units = tuple(
            replace(unit, model=self.path(unit.model), image=given if unit.image is None else unit.image)
            for unit in settings.controls
        )
        for path in set(self._known.names()) - {unit.model for unit in units}:
            self._known.drop(path)
        if not any(isinstance(each, IPAdapter) for each in self._known.values()):
            for path in self._encoders.names():
                self._encoders.drop(path)
        return replace(settings, controls=units)

    def steerings(self, first: Settings, second: Settings | None) -> tuple[Steering | None, Steering | None]:
        """The controls of both passes of such settings; None for a pass that has none, or is not there.

        Raises SettingError and ModelError for what cannot be used, before the first step.
        """
        if second is None:
            return self._steering(first, "", again=False), None
        return self._steering(first, "High res only", again=False), self._steering(second, "Low res only", again=True)

    def _steering(self, settings: Settings, left_out: str, *, again: bool) -> Steering | None:
        steers, prompts = list[Steer](), list[ImagePrompt]()
        for unit in settings.controls:
            control = self._control(unit)
            if unit.hr_option == left_out:
                continue
            if isinstance(control, IPAdapter):
                prompts.append(self._prompt(unit, control, settings))
            else:
                steers.append(self._steer(unit, control, settings, again))
        return Steering(self.model, steers, prompts) if steers or prompts else None

    def _control(self, unit: ControlUnit) -> Control | IPAdapter:
        path = Path(unit.model)

        def load() -> Control | IPAdapter:
            if is_ip_adapter(graphc.open_checkpoint(path)):
                adapter = load_ip_adapter(path, self.adapters)
                adapter.check(self.model)
                return adapter
            return load_control(self.model, path, self.kinds)

        return self._known(path, load, path)

    def _prompt(self, unit: ControlUnit, adapter: IPAdapter, settings: Settings) -> ImagePrompt:
        """What an IP-Adapter makes of a unit's picture, or of the one that painting begins with."""
        if unit.module not in ("none", LOOKS):
            raise SettingError(
                f"module: {unit.model} is an IP-Adapter and looks at the picture itself, not at {unit.module}"
            )
        picture = unit.image if unit.image is not None else settings.image
        if picture is None:
            raise SettingError(f"controls: {unit.model} has no image to look at")
        encoder = self._encoder(unit, adapter)
        both = np.stack([prepared(flatten(picture)), nothing(black=settings.mode == "comfyui")])
        reads = adapter.projection.reads
        seen, none = np.split(encoder.see(both)[reads], 2)
        region = None if unit.effective_region_mask is None else _region(unit.effective_region_mask)
        return image_prompt(
            adapter,
            seen,
            none if reads == "states" else np.zeros_like(seen),
            unit.weight,
            layers=unit.advanced_weighting,
            region=region,
            start=unit.guidance_start,
            end=unit.guidance_end,
            for_prompt=unit.control_mode == "ControlNet is more important",
        )

    def _encoder(self, unit: ControlUnit, adapter: IPAdapter) -> PictureEncoder:
        """The file of CLIP's encoder of pictures that an adapter reads: the unit's, or one of the folders. Raises ModelError."""
        given = [Path(unit.clip_vision)] if unit.clip_vision else []
        if given and self.folders is not None:
            given = [self.folders.find("image encoder", str(unit.clip_vision))]
        there = given or ([] if self.folders is None else [each.path for each in self.folders.of("image encoder")])
        for path in there:
            try:
                found = encoder_in(graphc.open_checkpoint(path))
            except graphc.GraphcError:
                if given:
                    raise
                continue
            if found == adapter.encoder:
                return self._encoders(path, lambda: PictureEncoder(self.model, path), path)  # noqa: B023
        kind = CLIPS.get(adapter.encoder, adapter.encoder)
        where = f"{given[0]} is another" if given else "there is none in the folder clip_vision"
        raise ModelError(f"{adapter.file}: it reads what CLIP's {kind} sees in a picture, and {where}")

    def _steer(self, unit: ControlUnit, control: Control, settings: Settings, again: bool) -> Steer:
        if unit.module == LOOKS:
            raise SettingError(f"module: {LOOKS} is for IP-Adapters, and {unit.model} is none")
        module = unit.module if self.detectors.has(unit.module) else preprocessor_of(unit.module)
        if module == "inpaint_only" and settings.mask is not None:
            module = "inpaint"  # what stays is kept already
        masked = module in PREPROCESSORS and PREPROCESSORS[module].masked
        pixels, fit = _shown(unit, settings, masked=masked)
        assert settings.width is not None
        assert settings.height is not None
        size = settings.height, settings.width
        resolution = pixel_perfect(pixels, *size, fit) if unit.pixel_perfect else unit.processor_res or RESOLUTION
        numbers = unit.threshold_a, unit.threshold_b
        found, shows = self.detectors.made(pixels, module, resolution, numbers, settings.seed)
        hint = fitted(found, *size, fit)
        look = control.look(as_array(hint), (unit.union_control_type or shows) if control.kind.kinds else None)
        forced = again and settings.mode == "a1111" and "canny" in module
        region = None if unit.effective_region_mask is None else _region(unit.effective_region_mask)
        scales = _scales(unit, control, forced)
        pooled = not control.kind.adapter and "shuffle" in Path(control.file).stem.lower()
        return Steer(unit, control, look, scales, hint, module, pooled, region, again)


def _close(control: Control | IPAdapter) -> None:
    if isinstance(control, Control):
        control.close()


def _shown(unit: ControlUnit, settings: Settings, *, masked: bool) -> tuple[np.ndarray, FitMode]:
    """A unit's picture [height, width, 3], or the one that painting begins with, and how it is fitted. If `masked`, a fourth
    channel is 255 where something is to be made up. Of all, what is painted alone is cut out."""
    own = unit.image is not None
    image = unit.image if own else settings.image
    if image is None:
        raise SettingError(f"controls: {unit.model or unit.module} has no image to follow")
    around = None if settings.mask is None else prepared_mask(settings)
    mask = unit.mask if own or unit.mask is not None else around
    if masked and mask is not None and mask.size != image.size:
        size, seen = (f"{each.width} x {each.height}" for each in (mask, image))
        raise SettingError(f"controls: the mask has {size} pixels, and its image {seen}")
    planes = [
        flatten(image),
        *([mask.convert("L") if mask is not None else Image.new("L", image.size)] if masked else []),
    ]
    fit = unit.resize_mode if own else RESIZE_MODES[pixel_mode(settings.resize_mode)]
    if settings.only_masked and around is not None and (masked or not own or unit.inpaint_crop_input_image):
        assert settings.width is not None
        assert settings.height is not None
        box, mode = box_alone(settings, around), FITS[fit]
        planes = [resize(each, *around.size, mode).crop(box) for each in planes]
        planes = [resize(each, settings.width, settings.height, "fill") for each in planes]
    return np.dstack([np.asarray(each) for each in planes]), fit


def _region(mask: Image.Image) -> np.ndarray:
    return np.asarray(mask.convert("L"), np.float32) / np.float32(255)


def _scales(unit: ControlUnit, control: Control, forced: bool) -> tuple[float, ...]:
    """A weight for each residual, or feature."""
    residuals, features = control.model.added_shapes()
    count = len(features if control.kind.adapter else residuals)
    if unit.advanced_weighting:
        if len(unit.advanced_weighting) != count:
            raise SettingError(
                f"advanced_weighting: {control.file} wants {count} weights, and not {len(unit.advanced_weighting)}"
            )
        return unit.advanced_weighting
    if unit.control_mode == "Balanced" and not forced:
        return (unit.weight,) * count
    if control.kind.adapter:
        return tuple(unit.weight * each for each in SOFT_FEATURES)
    return tuple(unit.weight * SOFT ** (12 - place) for place in range(count))
