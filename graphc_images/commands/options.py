"""The options of `graphc image` that are settings: a table, from which the command and its page are made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphc_images.errors import SettingError
from graphc_images.settings import Settings

if TYPE_CHECKING:
    from PIL import Image

    from graphc_images.control_units import ControlUnit


@dataclass(frozen=True)
class Option:
    """An option that is a setting. Without `flags` it is called as the setting is.

    `kind` is what the command line has, None for what the setting's type says; `read` makes the setting of it.
    """

    setting: str
    help: str
    flags: tuple[str, ...] = ()
    kind: Any = None
    read: Callable[[Any], Any] | None = None
    metavar: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """As they are typed; the setting's own name is understood besides (`same_option`)."""
        return self.flags or (f"--{self.setting.replace('_', '-')}",)

    @property
    def annotated(self) -> str:
        """What the setting is, as it is written in `Settings`."""
        return str(next(each.type for each in fields(Settings) if each.name == self.setting))

    @property
    def usual(self) -> str:
        """The setting's usual value, in words; nothing for what the model says."""
        return _in_words(next(each for each in fields(Settings) if each.name == self.setting))

    def value(self, given: Any) -> Any:
        """The setting's value. Raises SettingError and ImageError that name the option."""
        read = self.read or READERS.get(self.annotated)
        try:
            return given if read is None else read(given)
        except ValueError as problem:
            raise SettingError(f"{self.names[0]}: {problem}") from None

    def parameter(self, group: str) -> inspect.Parameter:
        """As the parameter of a command."""
        shown = typer.Option(
            *self.names,
            help=f"{self.help} Usual: {self.usual}." if self.usual else self.help,
            metavar=self.metavar or METAVARS.get(self.annotated),
            rich_help_panel=group,
            show_default=False,
        )
        kind = self.kind or KINDS.get(self.annotated, str)
        return inspect.Parameter(
            self.setting, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, shown]
        )


def _in_words(field: Any) -> str:
    if field.default in (None, MISSING, "", ()) or field.default is False:
        return ""
    if isinstance(field.default, tuple):
        return ",".join(map(str, field.default))
    return (
        "on"
        if field.default is True
        else f"{field.default:g}"
        if isinstance(field.default, float)
        else str(field.default)
    )


def _picture(path: Path) -> Image.Image:
    from graphc_images.pictures.files import open_picture

    return open_picture(path)[0]


def _pictures(paths: Iterable[Path]) -> tuple[Image.Image, ...]:
    return tuple(map(_picture, paths))


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal()):
        raise ValueError(f"{text!r} is not a width x height, such as 512x768")
    return int(width), int(height)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(item) for item in text.split(","))
    except ValueError:
        raise ValueError(f"{text!r} are not numbers with commas between") from None


def _strengths(texts: Iterable[str]) -> dict[str, float]:
    """Files or names, each with the strength behind its last colon."""

    def one(text: str) -> tuple[str, float]:
        name, colon, strength = text.rpartition(":")
        try:
            return (name, float(strength)) if colon and name else (text, 1.0)
        except ValueError:
            return text, 1.0

    return dict(map(one, texts))


def _files(texts: Iterable[str]) -> dict[str, str]:
    """Files by name; a file alone is called as it is without its ending."""
    named = {}
    for text in texts:
        name, sign, file = text.partition("=")
        named[name if sign else Path(text).stem] = file if sign else text
    return named


def record_of(made: Any, text: str) -> Any:
    """A record of `on`, or of `name=value` with commas between; what is not named is as usual. Raises ValueError."""
    usual: dict[str, Any] = {each.name: each.default for each in fields(made) if each.init}
    values: dict[str, Any] = {}
    for item in [] if text == "on" else text.split(","):
        name, sign, value = (part.strip() for part in item.partition("="))
        if not sign or name not in usual:
            raise ValueError(f"{item.strip()!r} is none of on, {', '.join(f'{each}=…' for each in usual)}")
        kind = type(usual[name])
        if kind is bool and value not in SWITCHED:
            raise ValueError(f"{item.strip()!r}: it is on or off")
        values[name] = SWITCHED[value] if kind is bool else kind(value)
    return made(**values)


SWITCHED = {"on": True, "off": False, "true": True, "false": False}
RECORDS = {
    "SoftInpainting | None": ("graphc_images.pictures.blending", "SoftInpainting"),
    "Projected | None": ("graphc_images.sampling.guidance", "Projected"),
    "DynamicThreshold | None": ("graphc_images.sampling.guidance", "DynamicThreshold"),
    "Frequencies | None": ("graphc_images.sampling.guidance", "Frequencies"),
    "FreeU | None": ("graphc_images.sampling.guidance", "FreeU"),
}
"""Settings that are records: where the type is, imported when it is typed."""


def _record(module: str, name: str) -> Callable[[str], Any]:
    return lambda text: record_of(getattr(import_module(module), name), text)


def _controls(texts: Iterable[str]) -> tuple[ControlUnit, ...]:
    """A control for each text: its file, or its name in the folders of models, then fields of `ControlUnit` as name=value."""
    from graphc_images.control_units import unit_of

    return tuple(unit_of(text, _picture) for text in texts)


def _modules(names: Iterable[str]) -> tuple[str, ...]:
    """Names of files, without the word for those of the checkpoint."""
    return tuple(each for each in names if each != "Built-in")


def _whole_numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(item) for item in text.split(","))
    except ValueError:
        raise ValueError(f"{text!r} are no whole numbers with commas between") from None


READERS: Mapping[str, Callable[[Any], Any]] = {
    "tuple[int, ...]": _whole_numbers,
    "Image.Image | None": _picture,
    "tuple[int, int] | None": _size,
    "tuple[float, ...]": _numbers,
    **{annotated: _record(*place) for annotated, place in RECORDS.items()},
}
"""What makes a setting of what is typed, by the setting's type."""

KINDS: Mapping[str, Any] = {
    **dict.fromkeys(("int", "int | None"), int),
    **dict.fromkeys(("float", "float | None"), float),
    **dict.fromkeys(("bool", "bool | None"), bool),
    "Image.Image | None": Path,
}
"""What the command line takes, by the setting's type; text for the others."""

METAVARS: Mapping[str, str] = {
    "Image.Image | None": "FILE",
    "tuple[int, int] | None": "WIDTHxHEIGHT",
    "tuple[float, ...]": "A,B,…",
    "tuple[int, ...]": "A,B,…",
    **dict.fromkeys(RECORDS, "on|NAME=VALUE,…"),
}

OPTIONS: Mapping[str, tuple[Option, ...]] = {
    "Picture": (
        Option("negative_prompt", "What is not to be seen.", ("--negative", "-n")),
        Option("width", "In pixels; the model's own, or the picture's, if not given.", ("--width", "-W")),
        Option("height", "In pixels.", ("--height", "-H")),
        Option("seed", "-1 for any; pictures of a batch have the seeds that follow.", ("--seed", "-s")),
        Option("batches", "How many pictures, or batches, one after the other.", ("--count",)),
        Option("batch_size", "How many go through the model together.", ("--batch",)),
        Option("mode", "a1111 or comfyui: whose pictures the seeds give."),
    ),
    "Sampling": (
        Option("steps", "Steps of the sampler."),
        Option("sampler", "See graphc image samplers."),
        Option("scheduler", "See graphc image schedulers."),
        Option("sigmas", "Noise levels in place of a scheduler's, with the 0 at the end."),
        Option("sigma_min", "Lowest noise level of the scheduler."),
        Option("sigma_max", "Highest noise level of the scheduler."),
        Option("rho", "Of Karras' and the polyexponential scheduler."),
        Option("discard_next_to_last_sigma", "Leave out the last noise level but one.", ("--discard-penultimate",)),
        Option("beta_alpha", "The first number of the Beta scheduler."),
        Option("beta_beta", "The second."),
        Option("more_noise", "As much noise at the start as ComfyUI has.", ("--sgm-noise-multiplier",)),
        Option("zero_snr", "The highest noise level is noise alone."),
        Option("half_alphas", "Noise levels from numbers of 16 bits (A1111's use_downcasted_alpha_bar)."),
        Option("uni_pc_variant", "bh1 or bh2."),
        Option("uni_pc_skip", "time_uniform or time_quadratic."),
        Option("uni_pc_order", "How many estimates UniPC looks at."),
        Option(
            "uni_pc_lower_order_final", "… also in its last steps.", ("--no-uni-pc-lower-order-final",),
            read=lambda given: not given,
        ),
        Option("refiner", "A checkpoint that goes on from --refiner-switch-at.", metavar="FILE|NAME"),
        Option("refiner_switch_at", "Share of the way from which it does."),
        Option("refiner_by_steps", "That share is one of the steps, not of the model's times."),
        Option("eta", "How much noise samplers add, of those that do."),
        Option("s_churn", "Noise that Euler, Heun and DPM2 add between --s-tmin and --s-tmax."),
        Option("s_tmin", "Lowest noise level at which --s-churn counts."),
        Option("s_tmax", "Highest noise level at which --s-churn counts."),
        Option("s_noise", "Factor of the noise that samplers add."),
    ),
    "Noise": (
        Option("generator", "Where random numbers come from: gpu (as A1111 on CUDA), cpu (as PyTorch), nv."),
        Option("subseed", "Seed of the variation; -1 for any."),
        Option("subseed_strength", "How much of the variation: 0 to 1."),
        Option("seed_resize_from", "The size at which the noise is drawn."),
        Option("eta_noise_seed_delta", "Added to the seed for the noise of samplers (ENSD).", ("--ensd",)),
        Option("shared_brownian", "One Brownian noise for a batch (A1111's no_dpmpp_sde_batch_determinism)."),
    ),
    "Guidance": (
        Option("cfg_scale", "How strongly the prompt guides.", ("--cfg",)),
        Option("guidance", "The distilled guidance of Flux dev."),
        Option("cfg_rescale", "How far contrast comes back to that without guidance: 0 to 1."),
        Option("skip_early_cfg", "Share of the first steps in which the negative prompt is left out."),
        Option("s_min_uncond", "Noise level below which each second step leaves it out (NGMS)."),
        Option("s_min_uncond_all", "… each step."),
        Option("apg", "Adaptive projected guidance: eta=1, norm=5, momentum=0."),
        Option("dynamic_thresholding", "A high --cfg with the spread of a lower one: mimic=7, percentile=1, …"),
        Option("cfg_zero_star", "CFG-Zero*: the negative noise scaled to the prompt's."),
        Option("mahiro", "More of the prompt's own direction."),
        Option("cfg_lengths", "The noise as strong as with the prompt alone, as diffusers has it for Qwen-Image."),
        Option("cfg_norm", "CFGNorm: no pixel stronger than with the prompt alone, times this."),
        Option("perp_neg", "Perp-Neg: of the negative prompt what lies across the prompt, times this."),
        Option("tangential_damping", "Less of the negative prompt along the prompt."),
        Option("fresca", "Finer structure from guidance: low=1, high=1.25, cutoff=20."),
        Option("epsilon_scaling", "What removed noise is divided by (1.005 is much used)."),
        Option("image_cfg_scale", "How strongly --image guides instruct-pix2pix.", ("--image-cfg",)),
        Option("pag_scale", "Perturbed-attention guidance of U-Nets; 3 is much used."),
        Option("free_u", "FreeU of U-Nets: b1=1.3, b2=1.4, s1=0.9, s2=0.2, …"),
        Option("slg_scale", "Skip-layer guidance of transformers; 3 is much used."),
        Option("slg_layers", "The layers that it skips."),
        Option("slg_start", "Share of the way at which skip-layer guidance begins."),
        Option("slg_end", "Share of the way at which it ends."),
    ),
    "Words": (
        Option("clip_skip", "Which layer of CLIP counts, from the end."),
        Option("emphasis", "Original, No norm, Ignore or None."),
        Option("comma_backtrack", "A chunk of tokens ends behind a comma, if one is among so many at its end."),
        Option("old_emphasis", "Brackets as in A1111's first versions: without numbers, and 75 tokens at most."),
        Option("old_timelines", "[from:to:when] as in A1111's first versions."),
        Option("pad_prompts", "Fill up the shorter of prompt and negative prompt: off, empty, or last (A1111's two ways)."),
        Option("crop_top", "Pixels that SDXL is told to be cut off at the top."),
        Option("crop_left", "… and at the left."),
        Option("high_score", "The aesthetic score that SDXL's refiner is told of the prompt."),
        Option("low_score", "… and of the negative prompt."),
        Option("t5_mask_pad", "Padding behind the text that Chroma sees; 1 as in its training."),
        Option(
            "loras", "Add a LoRA; may be repeated.", ("--lora",), list[str], _strengths, "FILE[:STRENGTH]",
        ),
        Option(
            "embeddings", "Words for a file of textual inversion; may be repeated.", ("--embedding",), list[str], _files,
            "[NAME=]FILE",
        ),
    ),
    "From a picture": (
        Option("image", "Begin with this picture.", ("--image", "-i")),
        Option("denoising_strength", "How much of it changes: 0 to 1.", ("--strength",)),
        Option("resize_mode", "To the size that is painted: stretch, crop, fill, or latent, which stretches its latent."),
        Option("resize_upscaler", "What makes --image larger on the way there: Lanczos, a file, or a name.", metavar="FILE|NAME"),
        Option("background", "The colour of what is transparent in --image."),
        Option("fix_steps", "All steps, also where only the last part of the way is gone."),
        Option("initial_noise_multiplier", "Factor of the noise that is added.", ("--noise-multiplier",)),
        Option("extra_noise", "More noise than the sampler takes away."),
        Option("control_image", "Edges or depth, for Flux Canny and Depth; what --control follows that has no image=FILE."),
        Option(
            "reference_images", "Flux Kontext, Flux.2 and Qwen-Image-Edit look at it; may be repeated.", ("--reference",),
            list[Path], _pictures, "FILE",
        ),
        Option("numbered_references", "One --reference is numbered as several are, for Qwen-Image-Edit since 2509."),
        Option("color_correction", "Give the result the colours of --image."),
    ),
    "A part of a picture": (
        Option("mask", "White where --image is painted anew."),
        Option("mask_blur", "Pixels over which the mask becomes softer."),
        Option("mask_blur_y", "The same down, if it is another than across."),
        Option(
            "overlay", "Do not put the picture outside of the mask over the result.", ("--no-overlay",),
            read=lambda given: not given,
        ),
        Option("invert_mask", "Paint where the mask is black."),
        Option("round_mask", "Keep the mask's greys.", ("--no-round-mask",), read=lambda given: not given),
        Option("inpainting_fill", "fill, original, latent noise or latent nothing.", ("--fill",)),
        Option("only_masked", "Paint the masked part at full size."),
        Option("only_masked_padding", "Pixels around it that are seen too.", ("--padding",)),
        Option("latent_mask", "What is painted anew in the latent, in the place of --mask."),
        Option("mask_weight", "How much models for inpainting do without what is under the mask: 0 to 1."),
        Option("soft_inpainting", "Mix by how much has changed; names as A1111's: schedule_bias=1, …"),
        Option("differential", "A grey mask says when a pixel begins to change."),
    ),
    "Controls": (
        Option(
            "controls", "A ControlNet, T2I-Adapter or IP-Adapter: module=canny (or any ONNX file), weight=0.8, "
            "guidance_end=0.5, …; may be repeated.", ("--control",), list[str], _controls, "FILE[,NAME=VALUE,…]",
        ),
    ),
    "Second pass": (
        Option("hires_scale", "Make it again so many times larger, from itself.", ("--hires",)),
        Option("hires_width", "To this width instead."),
        Option("hires_height", "To this height."),
        Option("hires_upscaler", "Latent, Latent (bicubic), Lanczos, …"),
        Option("hires_steps", "Steps of the second pass; as many as of the first if not given."),
        Option("hires_denoising_strength", "How much it changes.", ("--hires-strength",)),
        Option("hires_sampler", "Its sampler."),
        Option("hires_scheduler", "Its scheduler."),
        Option("hires_prompt", "Its prompt."),
        Option("hires_negative_prompt", "Its negative prompt.", ("--hires-negative",)),
        Option("hires_cfg_scale", "How strongly its prompt guides.", ("--hires-cfg",)),
        Option("hires_guidance", "Its distilled guidance."),
        Option("hires_checkpoint", "Its model.", metavar="FILE|NAME"),
        Option(
            "hires_modules", "Its autoencoder or a text encoder, by name, or Built-in; may be repeated.", ("--hires-module",),
            list[str], _modules, "NAME",
        ),
        Option("hires_same_networks", "The first pass's LoRAs are on its text encoders too."),
        Option("hires_refiner", "In which pass the refiner has its turn: first pass, second pass, both passes."),
        Option("firstpass_image", "What it goes on from, in place of a first pass."),
    ),
    "Tiles": (
        Option("tiling", "A picture without seams where it is laid beside itself: on, x, y or off."),
        Option("vae_tiling", "The autoencoder works on tiles: on, off, or auto, where the whole does not fit into memory."),
        Option("vae_tile", "Pixels of a tile's side."),
        Option("upscale_tile", "The same of networks that make pictures larger; 0 for the whole at once."),
        Option("upscale_overlap", "Pixels by which those tiles overlap."),
    ),
}  # fmt: skip
"""Every setting that can be typed, in groups. A setting alone is written as it is called, with dashes."""

IN_PYTHON_ONLY = ("prompt", "noise", "latent")
"""Settings that are no options: the prompt stands by itself, and arrays are not typed."""


def options() -> dict[str, Option]:
    """All by the name of the setting."""
    return {option.setting: option for group in OPTIONS.values() for option in group}


def same_option(typed: str) -> str:
    """An option as it is called in the table, of the setting's own name too, with dashes or underscores."""
    option = options().get(typed.replace("-", "_"))
    return option.names[0].removeprefix("--") if option is not None else typed


def settings_given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were typed, of all parameters of a command. Raises SettingError and ImageError."""
    known = options()
    return {name: known[name].value(value) for name, value in values.items() if value is not None}


def setting_of_text(name: str, text: str) -> tuple[str, Any]:
    """The setting that an option without its dashes means, and its value, as written in a file. Raises SettingError."""
    option = options().get(same_setting(name))
    if option is None:
        raise SettingError(f"there is no option --{name}")
    kind = option.kind or KINDS.get(option.annotated, str)
    try:
        if kind is bool:
            return option.setting, option.value(SWITCHED[text.lower()])
        return option.setting, option.value([text] if kind == list[str] else kind(text))
    except (ValueError, KeyError):
        raise SettingError(f"--{name}: {text!r} is no {WORDS.get(kind, 'value')}") from None


WORDS: Mapping[Any, str] = {int: "whole number", float: "number", bool: "switch: it is true or false"}


def same_setting(typed: str) -> str:
    """The setting that an option without its dashes means."""
    flags = {option.names[0].removeprefix("--"): option.setting for option in options().values()}
    return flags.get(typed.replace("_", "-"), typed.replace("-", "_"))


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose `**settings` are the options of the table."""
    own = inspect.signature(command, eval_str=True)
    kept = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    more = [option.parameter(group) for group, several in OPTIONS.items() for option in several]
    command.__signature__ = own.replace(parameters=[*kept, *more])  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in (*kept, *more)}
    return command
