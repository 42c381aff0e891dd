"""What is written into pictures: A1111's text, from settings, and settings from such a text. Both by one table."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

from graphc_images import control_units
from graphc_images.control_units import ControlUnit
from graphc_images.errors import SettingError
from graphc_images.folders import called
from graphc_images.pictures.blending import SoftInpainting
from graphc_images.pictures.files import Notes
from graphc_images.pictures.graphs import graph_of, parameters_of_graph
from graphc_images.pictures.parameters import SIZE, Parameters, read_parameters, write_parameters
from graphc_images.prompts.extras import take_networks
from graphc_images.sampling.guidance import DynamicThreshold, FreeU, Frequencies, Projected
from graphc_images.sampling.names import chosen_scheduler, find_sampler, find_scheduler
from graphc_images.settings import Settings

USUAL: Mapping[str, Any] = {
    each.name: each.default_factory()
    if each.default is MISSING and each.default_factory is not MISSING
    else each.default
    for each in fields(Settings)
}


@dataclass(frozen=True)
class Entry:
    """A line of the table: A1111's label, what is written (None for nothing), and the settings that a text gives.

    `read` raises ValueError for a text that it does not understand.
    """

    label: str
    write: Callable[[Settings], object]
    read: Callable[[str], dict[str, Any]]


def described(settings: Settings, model: str, hashes: Mapping[str, object] | None = None) -> str:
    """The text of a picture of resolved settings. `hashes` are more labels and their values (see `hashes.py`)."""
    pairs: dict[str, object] = {"Model": model, **(hashes or {})}
    pairs |= {entry.label: entry.write(settings) for entry in ENTRIES}
    pairs["Version"] = f"graphc {version('graphc')}" + ("" if settings.mode == "a1111" else f" ({settings.mode})")
    named = "".join(f"<lora:{called(name)}:{number(float(each))}>" for name, each in settings.loras.items())
    return write_parameters(settings.prompt + named, settings.negative_prompt, pairs)


def settings_of(parameters: Parameters) -> dict[str, Any]:
    """What a picture's text says, as keywords of `Settings`. What cannot be read is left out."""
    found: dict[str, Any] = {"prompt": parameters.prompt, "negative_prompt": parameters.negative_prompt}
    for entry in ENTRIES:
        if entry.label in parameters.settings:
            try:
                found |= entry.read(parameters.settings[entry.label])
            except (ValueError, SettingError):
                continue
    units = tuple(found.pop(name) for name in sorted(found) if name.startswith("controls."))
    modules = tuple(found.pop(name) for name in sorted(found) if name.startswith("hires_modules."))
    found = _gathered(found) | ({"controls": units} if units else {}) | ({"hires_modules": modules} if modules else {})
    if again_of(parameters.settings) and "denoising_strength" in found:
        found["hires_denoising_strength"] = found.pop("denoising_strength")
    if "(comfyui)" in parameters.settings.get("Version", ""):
        found["mode"] = "comfyui"
    return found


def parameters_in(notes: Notes) -> Parameters | None:
    """What a picture's notes say, under A1111's labels: its text, else ComfyUI's graph; None if it has neither."""
    if notes.parameters:
        return read_parameters(notes.parameters)
    return parameters_of_graph(notes.graphs["prompt"]) if "prompt" in notes.graphs else None


def settings_in(notes: Notes) -> dict[str, Any]:
    """The same as keywords of `Settings`; nothing if it has neither."""
    said = parameters_in(notes)
    if said is None:
        return {}
    return settings_of(said) if notes.parameters else {**settings_of(said), "mode": "comfyui"}


def model_in(notes: Notes) -> str | None:
    """The name of the model that they say, without its folder and its hash; None if they say none."""
    said = parameters_in(notes)
    name = "" if said is None else said.settings.get("Model", "")
    return PurePosixPath(HASH.sub("", name).replace("\\", "/")).name or None


GRAPHED = frozenset(
    (
        "prompt",
        "negative_prompt",
        "width",
        "height",
        "seed",
        "steps",
        "cfg_scale",
        "sampler",
        "scheduler",
        "loras",
        "clip_skip",
    )
)
"""Settings that ComfyUI's graph has."""

OF_ANY_GRAPH = frozenset(("mode", "batches", "batch_size", "subseed", "vae_tiling", "vae_tile"))
"""Those that make the same picture, whatever they are; seeds of ComfyUI mean others anyway."""

USUAL_GUIDANCE = 3.5
"""The distilled guidance of ComfyUI, without a node that says so."""


def comfyui_graph(settings: Settings, model: str) -> dict[str, Any]:
    """The graph of ComfyUI that makes a picture of resolved settings. Raises SettingError for what the graph has no nodes for."""
    for name, usual in {**USUAL, "guidance": USUAL_GUIDANCE}.items():
        value = getattr(settings, name)
        if name in GRAPHED | OF_ANY_GRAPH or value is None or (usual is not None and value == usual):
            continue
        raise SettingError(f"{name}: ComfyUI's graph is written for pictures of words alone, of one pass, without it")
    sampler, own = find_sampler(settings.sampler or "", settings.mode)
    scheduler = chosen_scheduler(settings.scheduler, own)
    prompt, networks = take_networks(settings.prompt)
    assert settings.width is not None
    assert settings.height is not None
    return graph_of(
        prompt,
        settings.negative_prompt,
        checkpoint=f"{model}.safetensors",
        width=settings.width,
        height=settings.height,
        seed=settings.seed,
        steps=settings.steps or 1,
        cfg=settings.cfg_scale or 0.0,
        sampler=sampler.comfyui or sampler.name,
        scheduler=(scheduler.comfyui if scheduler else "") or "normal",
        loras=[
            *((f"{each.name}.safetensors", each.model_weight, each.text_weight) for each in networks),
            *((Path(name).name, strength, strength) for name, strength in settings.loras.items()),
        ],
        clip_skip=settings.clip_skip or 1,
    )


def again_of(labels: Mapping[str, str]) -> bool:
    """True if a text describes a picture with a second pass, whose strength it says."""
    return "Hires upscale" in labels or "Hires resize" in labels


def number(value: float | None) -> float | int | None:
    """A whole number without its point, as A1111 writes it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def always(settings: Settings) -> bool:
    """What A1111 writes into each picture."""
    return True


def again(settings: Settings) -> bool:
    """True if there is a second pass."""
    return settings.hires_scale > 1 or bool(settings.hires_width or settings.hires_height)


def masked(settings: Settings) -> bool:
    """True if a part of a picture is painted."""
    return settings.mask is not None


def only_masked(settings: Settings) -> bool:
    """… and that alone."""
    return masked(settings) and settings.only_masked


def varied(settings: Settings) -> bool:
    """True if the noise is that of two seeds."""
    return settings.subseed_strength > 0


HASH = re.compile(r" \[[0-9a-f]{6,64}\]$")
"""What A1111 writes behind the name of a model."""


def _entry(
    label: str, setting: str, kind: Callable[[str], Any] = float, when: Callable[[Settings], bool] | None = None
) -> Entry:
    """One setting as it is. It is written if it differs from its usual value, or if `when` says so."""

    def write(settings: Settings) -> object:
        value = getattr(settings, setting)
        wanted = value != USUAL[setting] if when is None else when(settings)
        return number(value) if wanted else None

    return Entry(label, write, lambda text: {setting: kind(text)})


def _switch(label: str, setting: str, on: str = "True", value: bool = True) -> Entry:
    """A setting of two values, of which one is written, as `on`."""

    def read(text: str) -> dict[str, Any]:
        return {setting: value if text == on else not value}

    return Entry(label, lambda settings: on if getattr(settings, setting) is value else None, read)


def _word(label: str, setting: str, word: str) -> Entry:
    """One of a setting's words, as a label of its own."""
    return Entry(label, lambda settings: getattr(settings, setting) == word or None, lambda text: {setting: word})


BUILT_IN = "Built-in"
MOST_MODULES = 5


def _module(number: int) -> Entry:
    """A file of the second pass, as Forge writes it; the first place says that there are none."""

    def write(settings: Settings) -> object:
        names = settings.hires_modules
        if names == ():
            return None if number else BUILT_IN
        return None if names is None or number >= len(names) else names[number]

    def read(text: str) -> dict[str, Any]:
        if text == BUILT_IN:
            return {"hires_modules": ()}
        return {} if text == "Use same choices" else {f"hires_modules.{number}": text}

    return Entry(f"Hires Module {number + 1}", write, read)


def _list(label: str, setting: str, kind: Callable[[str], Any]) -> Entry:
    """Several numbers, with commas between."""

    def write(settings: Settings) -> object:
        value = getattr(settings, setting)
        return ", ".join(map(str, value)) if value != USUAL[setting] else None

    return Entry(label, write, lambda text: {setting: tuple(kind(each) for each in text.split(","))})


def _unless(same: str, setting: str, label: str, when: Callable[[Settings], bool] = again) -> Entry:
    """A name, or `same`, which stands for none."""

    def write(settings: Settings) -> object:
        return getattr(settings, setting) if when(settings) else None

    return Entry(label, write, lambda text: {} if text == same else {setting: text})


def _sizes(text: str) -> tuple[int, int]:
    match = SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size")
    return int(match[1]), int(match[2])


def _size(label: str, width: str, height: str, write: Callable[[Settings], object]) -> Entry:
    return Entry(label, write, lambda text: dict(zip((width, height), _sizes(text), strict=True)))


def sampler_label(settings: Settings) -> str:
    """A1111's name of the sampler, or its own."""
    sampler, _ = find_sampler(settings.sampler or "", settings.mode)
    return sampler.label or sampler.name


def scheduler_label(settings: Settings) -> str | None:
    """A1111's name of the scheduler, or its own."""
    _, own = find_sampler(settings.sampler or "", settings.mode)
    named = find_scheduler(settings.scheduler) if settings.scheduler else None
    scheduler = chosen_scheduler(settings.scheduler, own) or named
    return None if scheduler is None else scheduler.label or scheduler.name


def _strength(settings: Settings) -> object:
    from_picture = settings.image is not None
    return number(
        settings.denoising_strength if from_picture else settings.hires_denoising_strength if again(settings) else None
    )


def _hires_size(settings: Settings) -> object:
    if not (settings.hires_width or settings.hires_height):
        return None
    return f"{settings.hires_width or settings.width}x{settings.hires_height or settings.height}"


def _eta(label: str, on_times: bool) -> Entry:
    """A1111 has one for samplers on times and one for the others."""

    def write(settings: Settings) -> object:
        return (
            number(settings.eta)
            if find_sampler(settings.sampler or "", settings.mode)[0].on_times == on_times
            else None
        )

    return Entry(label, write, lambda text: {"eta": float(text)})


SWITCHES = {"Scaling Startpoint": ("MEAN", "ZERO"), "Variability Measure": ("STD", "AD")}
UNITS = {"Threshold percentile": 100}
"""What sd-dynamic-thresholding writes for yes and for no, and what it writes in hundredths."""


def _record(setting: str, made: type, enabled: str, labels: Mapping[str, str]) -> tuple[Entry, ...]:
    """A setting that is a record: one label says that it is there, and others have its fields. Read, a field is called
    `setting.field`."""
    usual = made()

    def part(label: str, name: str) -> Entry:
        kind = type(getattr(usual, name))
        unit = UNITS.get(label, 1)
        words = SWITCHES.get(label, ("True", "False"))

        def write(settings: Settings) -> object:
            record = getattr(settings, setting)
            value = None if record is None else getattr(record, name)
            if isinstance(value, bool):
                return words[not value]
            return number(value * unit) if isinstance(value, float) else value

        def read(text: str) -> dict[str, Any]:
            value = text == words[0] if kind is bool else kind(text)
            return {f"{setting}.{name}": value / unit if kind is float else value}

        return Entry(label, write, read)

    there = Entry(enabled, lambda settings: getattr(settings, setting) and True, lambda text: {setting: made})
    return there, *(part(label, name) for name, label in labels.items())


def _gathered(found: dict[str, Any]) -> dict[str, Any]:
    """The same with records made of their fields; fields of one that is not there are left out."""
    parts = {name: value for name, value in found.items() if "." in name}
    whole = {name: value for name, value in found.items() if name not in parts}
    for setting, made in whole.items():
        if isinstance(made, type):
            own = {name.partition(".")[2]: value for name, value in parts.items() if name.startswith(f"{setting}.")}
            whole[setting] = made(**own)
    return whole


TILINGS = {"on": "True", "x": "x", "y": "y"}
"""How seamless pictures are written: A1111's, and what only we have."""


def _tiling(text: str) -> str:
    return next((ours for ours, theirs in TILINGS.items() if theirs == text), "off")


def _control(number: int) -> Entry:
    """A control, as sd-webui-controlnet writes it."""

    def write(settings: Settings) -> object:
        return control_units.written(settings.controls[number]) if number < len(settings.controls) else None

    return Entry(
        f"ControlNet {number}", write, lambda text: {f"controls.{number}": ControlUnit(**control_units.read(text))}
    )


ENTRIES: tuple[Entry, ...] = (
    _entry("Steps", "steps", int, always),
    Entry("Sampler", sampler_label, lambda text: {"sampler": text}),
    Entry("Schedule type", scheduler_label, lambda text: {"scheduler": text}),
    _entry("CFG scale", "cfg_scale", float, always),
    _entry("Distilled CFG Scale", "guidance"),
    _entry("Image CFG scale", "image_cfg_scale"),
    _entry("Seed", "seed", int, always),
    _size("Size", "width", "height", lambda settings: f"{settings.width}x{settings.height}"),
    _entry("Variation seed", "subseed", int, varied),
    _entry("Variation seed strength", "subseed_strength"),
    Entry(
        "Seed resize from",
        lambda settings: "{}x{}".format(*settings.seed_resize_from) if settings.seed_resize_from else None,
        lambda text: {"seed_resize_from": _sizes(text)},
    ),
    Entry("Denoising strength", _strength, lambda text: {"denoising_strength": float(text)}),
    _entry("Conditional mask weight", "mask_weight"),
    _entry("Clip skip", "clip_skip", int, lambda settings: (settings.clip_skip or 1) > 1),
    _entry("ENSD", "eta_noise_seed_delta", int),
    Entry(
        "RNG",
        lambda settings: settings.generator.upper() if settings.generator else None,
        lambda text: {"generator": text.lower()},
    ),
    _entry("Hires upscale", "hires_scale"),
    _size("Hires resize", "hires_width", "hires_height", _hires_size),
    _entry("Hires steps", "hires_steps", int),
    _entry("Hires upscaler", "hires_upscaler", str, again),
    _unless("Use same sampler", "hires_sampler", "Hires sampler"),
    _unless("Use same scheduler", "hires_scheduler", "Hires schedule type"),
    _unless("", "hires_prompt", "Hires prompt"),
    _unless("", "hires_negative_prompt", "Hires negative prompt"),
    _entry("Hires CFG Scale", "hires_cfg_scale"),
    _entry("Hires Distilled CFG Scale", "hires_guidance"),
    _unless("Use same checkpoint", "hires_checkpoint", "Hires checkpoint"),
    *(_module(number) for number in range(MOST_MODULES)),
    _switch("Hires networks of the first pass", "hires_same_networks"),
    _switch("Mask mode", "invert_mask", "Inpaint not masked"),
    _entry("Mask blur", "mask_blur", float, masked),
    _entry("Mask blur down", "mask_blur_y"),
    _switch("Overlay", "overlay", "False", value=False),
    _switch("Mask rounding", "round_mask", "False", value=False),
    _switch("Inpaint area", "only_masked", "Only masked"),
    _entry("Masked area padding", "only_masked_padding", int, only_masked),
    _entry("Masked content", "inpainting_fill", str),
    *_record("soft_inpainting", SoftInpainting, "Soft inpainting enabled", {
        "schedule_bias": "Soft inpainting schedule bias",
        "preservation_strength": "Soft inpainting preservation strength",
        "transition_contrast_boost": "Soft inpainting transition contrast boost",
        "mask_influence": "Soft inpainting mask influence",
        "difference_threshold": "Soft inpainting difference threshold",
        "difference_contrast": "Soft inpainting difference contrast",
    }),
    _switch("Differential diffusion", "differential"),
    _entry("Resize mode", "resize_mode", str),
    _entry("Resize upscaler", "resize_upscaler", str),
    _entry("Background", "background", str),
    _entry("Noise multiplier", "initial_noise_multiplier"),
    _entry("Extra noise", "extra_noise"),
    _switch("Fix steps", "fix_steps"),
    _switch("Color correction", "color_correction"),
    Entry("Tiling", lambda settings: TILINGS.get(settings.tiling), lambda text: {"tiling": _tiling(text)}),
    _entry("VAE tiling", "vae_tiling", str),
    _entry("VAE tile", "vae_tile", int),
    _entry("Upscaler tile", "upscale_tile", int),
    _entry("Upscaler tile overlap", "upscale_overlap", int),
    _entry("Refiner", "refiner", lambda text: HASH.sub("", text)),
    _entry("Refiner switch at", "refiner_switch_at", float, lambda settings: settings.refiner is not None),
    _switch("Refiner switch by sampling steps", "refiner_by_steps"),
    _entry("Hires refiner", "hires_refiner", str),
    _entry("T5 mask pad", "t5_mask_pad", int),
    _entry("Emphasis", "emphasis", str),
    _switch("Old emphasis", "old_emphasis"),
    _switch("Old prompt editing timelines", "old_timelines"),
    _switch("Downcast alphas_cumprod", "half_alphas"),
    _switch("Shared Brownian noise", "shared_brownian"),
    _word("Pad conds", "pad_prompts", "empty"),
    _word("Pad conds v0", "pad_prompts", "last"),
    _eta("Eta", on_times=False),
    _eta("Eta DDIM", on_times=True),
    _entry("Sigma churn", "s_churn"),
    _entry("Sigma tmin", "s_tmin"),
    _entry("Sigma tmax", "s_tmax"),
    _entry("Sigma noise", "s_noise"),
    _entry("Schedule min sigma", "sigma_min"),
    _entry("Schedule max sigma", "sigma_max"),
    _entry("Schedule rho", "rho"),
    _list("Sigmas", "sigmas", float),
    _switch("Discard penultimate sigma", "discard_next_to_last_sigma"),
    _switch("SGM noise multiplier", "more_noise"),
    _switch("Noise Schedule", "zero_snr", "Zero Terminal SNR"),
    _entry("Beta schedule alpha", "beta_alpha"),
    _entry("Beta schedule beta", "beta_beta"),
    _entry("UniPC variant", "uni_pc_variant", str),
    _entry("UniPC skip type", "uni_pc_skip", str),
    _entry("UniPC order", "uni_pc_order", int),
    _switch("UniPC lower order final", "uni_pc_lower_order_final", "False", value=False),
    _entry("Comma padding backtrack", "comma_backtrack", int),
    _entry("Crop top", "crop_top", int),
    _entry("Crop left", "crop_left", int),
    _entry("Low aesthetic score", "low_score"),
    _entry("High aesthetic score", "high_score"),
    _entry("NGMS", "s_min_uncond"),
    _switch("NGMS all steps", "s_min_uncond_all"),
    _entry("Skip Early CFG", "skip_early_cfg"),
    _entry("CFG Rescale phi", "cfg_rescale"),
    *_record("apg", Projected, "APG", {
        "eta": "APG eta", "norm": "APG norm threshold", "momentum": "APG momentum",
    }),
    *_record("dynamic_thresholding", DynamicThreshold, "Dynamic thresholding enabled", {
        "mimic": "Mimic scale",
        "percentile": "Threshold percentile",
        "mimic_shape": "Mimic mode",
        "mimic_lowest": "Mimic scale minimum",
        "shape": "CFG mode",
        "lowest": "CFG scale minimum",
        "power": "Scheduler value",
        "each_channel": "Separate Feature Channels",
        "from_mean": "Scaling Startpoint",
        "by_deviation": "Variability Measure",
        "share": "Interpolate Phi",
    }),
    _switch("CFG Zero Star", "cfg_zero_star"),
    _switch("MaHiRo", "mahiro"),
    _switch("CFG lengths", "cfg_lengths"),
    _switch("Numbered references", "numbered_references"),
    _entry("CFGNorm", "cfg_norm"),
    _entry("Perp-Neg", "perp_neg"),
    _switch("Tangential damping", "tangential_damping"),
    *_record("fresca", Frequencies, "FreSca", {
        "low": "FreSca low", "high": "FreSca high", "cutoff": "FreSca cutoff",
    }),
    _entry("Epsilon scaling", "epsilon_scaling"),
    _entry("PAG scale", "pag_scale"),
    *_record("free_u", FreeU, "freeu_enabled", {
        "b1": "freeu_b1", "b2": "freeu_b2", "s1": "freeu_s1", "s2": "freeu_s2", "second_version": "FreeU second version",
        "by_blocks": "FreeU by blocks",
    }),
    _entry("SLG scale", "slg_scale"),
    _list("SLG layers", "slg_layers", int),
    _entry("SLG start", "slg_start"),
    _entry("SLG end", "slg_end"),
    *map(_control, range(10)),
)  # fmt: skip
"""A1111's and Forge's labels, in their order; what they have no label for has one of our own."""
