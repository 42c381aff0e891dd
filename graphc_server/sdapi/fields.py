"""The fields of txt2img and img2img, in one table: each with its type, its usual value, and what it means for the settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from graphc_images import ModelError, SettingError
from graphc_images.pictures.parameters import old_first_pass
from graphc_images.sampling import find_scheduler
from graphc_server.errors import RequestError
from graphc_server.models import Models
from graphc_server.sdapi.modules import modules_called

Settings = dict[str, Any]


@dataclass(frozen=True)
class Given:
    """A request as the table's functions see it: its fields, what makes a picture of a text, the models that there are, and the
    options that count for it."""

    fields: Mapping[str, Any]
    picture: Callable[[str, str], Image.Image]
    """From a text and the field's name."""
    models: Models
    options: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields.get(name)


Meaning = Callable[[Any, Given], Settings]


@dataclass(frozen=True)
class Field:
    """A field. `meaning` is a setting of the same value, a function that gives settings, or None where another place reads it
    (`read_by`)."""

    name: str
    kind: Any
    usual: Any
    meaning: str | Meaning | None = None
    says: str = ""
    sets: tuple[str, ...] = field(default=())
    """The settings that a function gives, by which errors are traced back to the field."""

    def settings(self, value: Any, given: Given) -> Settings:
        """What the field means. Raises RequestError that names it."""
        if self.meaning is None or value is None:
            return {}
        return {self.meaning: value} if isinstance(self.meaning, str) else self.meaning(value, given)

    @property
    def setting_names(self) -> tuple[str, ...]:
        """All settings that it may give."""
        return (self.meaning,) if isinstance(self.meaning, str) else self.sets


def only(name: str, *harmless: Any, why: str) -> Meaning:
    """A field of which only some values can be done."""

    def check(value: Any, given: Given) -> Settings:
        if value not in harmless:
            raise RequestError(f"{name}: {str(value)[:60]!r} cannot be done: {why}")
        return {}

    return check


def unless(setting: str, *same: Any) -> Meaning:
    """A setting, but for values that stand for none."""
    return lambda value, given: {} if value in same else {setting: value}


def _side(name: str) -> Meaning:
    """As A1111, which paints the part that is whole pixels of the latent."""
    return lambda value, given: {name: value // 8 * 8}


def _sampler(value: Any, given: Given) -> Settings:
    return {"sampler": given["sampler_name"] or given["sampler_index"] or "Euler"}


def _scheduler(name: str, setting: str, *same: str) -> Meaning:
    def read(value: str, given: Given) -> Settings:
        if value.strip() in ("", *same):
            return {}
        try:
            find_scheduler(value)
        except SettingError:
            raise RequestError(f"{name}: Scheduler not found: {value[:60]!r}", 400) from None
        return {setting: value}

    return read


def _resized_seed(value: int, given: Given) -> Settings:
    width, height = given["seed_resize_from_w"] or 0, given["seed_resize_from_h"] or 0
    return {"seed_resize_from": (width, height)} if width > 0 and height > 0 else {}


def _seamless(value: bool, given: Given) -> Settings:
    return {"tiling": "on" if value else "off"}


def _churn_end(value: float, given: Given) -> Settings:
    return {"s_tmax": value or math.inf}


def model_called(name: str, field: str, given: Given) -> str:
    """The file of a model, by title, name or hash. Raises RequestError that names the field."""
    try:
        file = given.models.find(name).file
    except ModelError as problem:
        raise RequestError(f"{field}: {problem}", 404) from None
    return f"{file.name}{file.path.suffix}"


def refined(name: Any, share: Any, given: Given) -> Settings:
    """A refiner, unless none is named."""
    if name in NO_MODEL:
        return {}
    found: Settings = {"refiner": model_called(str(name), "refiner_checkpoint", given)}
    return found if share is None else found | {"refiner_switch_at": share}


def _refiner(value: str, given: Given) -> Settings:
    return refined(value, given["refiner_switch_at"], given)


def _second_modules(names: list[str] | None, given: Given) -> tuple[str, ...] | None:
    if names is None or "Use same choices" in names:
        return None
    vae, text = modules_called(given.models, names, "hr_additional_modules")
    return (*((vae,) if vae else ()), *text)


def _hires(value: bool, given: Given) -> Settings:
    """The second pass as a whole: A1111 reads its fields only if it is enabled."""
    if not value:
        return {}
    wide, high = given["hr_resize_x"] or 0, given["hr_resize_y"] or 0
    first = given["firstphase_width"] or 0, given["firstphase_height"] or 0
    if given.options["use_old_hires_fix_width_height"]:
        first = old_first_pass(given["width"] or 512, given["height"] or 512)
    found: Settings = {"hires_scale": given["hr_scale"], "hires_denoising_strength": given["denoising_strength"]}
    if any(first):
        found |= {"hires_width": given["width"], "hires_height": given["height"], "width": first[0], "height": first[1]}
        if not all(first):
            raise RequestError("firstphase_width, firstphase_height: both are needed")
    elif wide or high:
        shape = max(given["width"] or 512, 8) / max(given["height"] or 512, 8)
        found |= {
            "hires_width": (wide or int(high * shape)) // 8 * 8,
            "hires_height": (high or int(wide / shape)) // 8 * 8,
        }
    found["hires_upscaler"] = given["hr_upscaler"] or "Latent"
    named = {
        "hires_steps": given["hr_second_pass_steps"] or None,
        "hires_prompt": given["hr_prompt"] or None,
        "hires_negative_prompt": given["hr_negative_prompt"] or None,
        "hires_cfg_scale": given["hr_cfg"],
        "hires_guidance": given["hr_distilled_cfg"],
        "hires_modules": _second_modules(given["hr_additional_modules"], given),
    }
    if given["hr_checkpoint_name"] not in NO_MODEL:
        named["hires_checkpoint"] = model_called(given["hr_checkpoint_name"], "hr_checkpoint_name", given)
    if given["firstpass_image"]:
        named["firstpass_image"] = given.picture(given["firstpass_image"], "firstpass_image")
    for name, label, setting in (
        ("hr_sampler_name", "Use same sampler", "hires_sampler"),
        ("hr_scheduler", "Use same scheduler", "hires_scheduler"),
    ):
        named[setting] = None if given[name] in (None, "", label) else given[name]
    return found | {name: each for name, each in named.items() if each is not None}


def _first_image(value: list[str], given: Given) -> Settings:
    if not value:
        raise RequestError("Init image not found", 404)
    return {"image": given.picture(value[0], "init_images")}


def _mask(value: str, given: Given) -> Settings:
    """A1111 looks at the opacity of a picture that has one and nothing else, else at the brightness."""
    if not value:
        return {}
    mask = given.picture(value, "mask")
    if mask.mode in ("RGBA", "LA", "PA") or "transparency" in mask.info:
        mask = mask.convert("RGBA")
        opacity = mask.getchannel("A")
        if opacity.getextrema() != (255, 255):
            return {"mask": opacity}
    return {"mask": mask.convert("L")}


def _latent_mask(value: str, given: Given) -> Settings:
    return {"latent_mask": given.picture(value, "latent_mask").convert("L")} if value else {}


def _blur(value: float, given: Given) -> Settings:
    if given["mask_blur"] is not None:
        return {"mask_blur": given["mask_blur"]}
    across, down = given["mask_blur_x"], given["mask_blur_y"]
    return {"mask_blur": across} if across == down else {"mask_blur": across, "mask_blur_y": down}


def _chosen(name: str, setting: str, *values: str | None) -> Meaning:
    """A number that stands for a word; None is one that cannot be done."""

    def read(value: int, given: Given) -> Settings:
        word = values[value] if 0 <= value < len(values) else None
        if word is None:
            raise RequestError(
                f"{name}: {value} cannot be done; {', '.join(f'{i} {v}' for i, v in enumerate(values) if v)}"
            )
        return {setting: word}

    return read


NO_MODEL = (None, "", "None", "none", "Use same checkpoint")
HIRES = {
    "hires_scale": "hr_scale", "hires_width": "hr_resize_x", "hires_height": "hr_resize_y", "hires_upscaler": "hr_upscaler",
    "hires_steps": "hr_second_pass_steps", "hires_denoising_strength": "denoising_strength", "hires_prompt": "hr_prompt",
    "hires_negative_prompt": "hr_negative_prompt", "hires_cfg_scale": "hr_cfg", "hires_sampler": "hr_sampler_name",
    "hires_scheduler": "hr_scheduler", "hires_guidance": "hr_distilled_cfg", "hires_checkpoint": "hr_checkpoint_name",
    "hires_modules": "hr_additional_modules", "firstpass_image": "firstpass_image",
}  # fmt: skip
"""The settings of a second pass, which are read together, and the field of each."""

SHARED: tuple[Field, ...] = (
    Field("prompt", str | None, "", "prompt", "What is to be seen."),
    Field("negative_prompt", str | None, "", "negative_prompt", "What is not to be seen."),
    Field("styles", list[str] | None, [], None, "Names of saved styles, that the prompts are put into."),
    Field("seed", int | None, -1, "seed", "-1 for any."),
    Field("subseed", int | None, -1, "subseed", "Of the variation."),
    Field("subseed_strength", float | None, 0, "subseed_strength", "How much of it, 0 to 1."),
    Field("seed_resize_from_h", int | None, -1, _resized_seed, "The height at which noise is drawn.", ("seed_resize_from",)),
    Field("seed_resize_from_w", int | None, -1, _resized_seed, "The width.", ("seed_resize_from",)),
    Field("sampler_name", str | None, None, _sampler, "Also by its old names, and those of other programs.", ("sampler",)),
    Field("sampler_index", str | None, "Euler", _sampler, "The sampler, where sampler_name is not given.", ("sampler",)),
    Field("scheduler", str | None, None, _scheduler("scheduler", "scheduler"), "Automatic if not given.", ("scheduler",)),
    Field("batch_size", int | None, 1, "batch_size", "Pictures that go through the model together."),
    Field("n_iter", int | None, 1, "batches", "Batches, one after the other."),
    Field("steps", int | None, 50, "steps", "Of the sampler."),
    Field("cfg_scale", float | None, 7.0, "cfg_scale", "How strongly the prompt guides."),
    Field("distilled_cfg_scale", float | None, 3.5, "guidance", "The same of models that take it as an input (Forge)."),
    Field("width", int | None, 512, _side("width"), "In pixels.", ("width",)),
    Field("height", int | None, 512, _side("height"), "In pixels.", ("height",)),
    Field(
        "restore_faces", bool | None, None,
        only("restore_faces", False, why="there is no model that restores faces"), "Refused.",
    ),
    Field("tiling", bool | None, None, _seamless, "Pictures that continue at their other edge.", ("tiling",)),
    Field("do_not_save_samples", bool | None, False, None, "Pictures are then not kept, even with save_images."),
    Field("do_not_save_grid", bool | None, False, None, "No grid of several pictures, which comes first with save_images."),
    Field("eta", float | None, None, "eta", "How much noise samplers add, of those that do."),
    Field("s_min_uncond", float | None, None, "s_min_uncond", "Noise level below which each second step has no negative."),
    Field("s_churn", float | None, None, "s_churn", "Noise that Euler, Heun and DPM2 add."),
    Field("s_tmin", float | None, None, "s_tmin", "Lowest level at which they do."),
    Field("s_tmax", float | None, None, _churn_end, "Highest level; 0 for no end.", ("s_tmax",)),
    Field("s_noise", float | None, None, "s_noise", "Factor of the noise."),
    Field("override_settings", dict[str, Any] | None, {}, None, "Options for this request alone."),
    Field("override_settings_restore_afterwards", bool | None, True, None, "If false, they stay."),
    Field("refiner_checkpoint", str | None, None, _refiner, "A model that goes on with what another began.", ("refiner",)),
    Field(
        "refiner_switch_at", float | None, None, None, "The share of the way after which it does; 0.8.", ("refiner_switch_at",),
    ),
    Field("disable_extra_networks", bool | None, False, None, "The networks that prompts name are left out."),
    Field("comments", dict[str, Any] | None, None, None, "No effect on pictures."),
    Field("script_name", str | None, None, None, "A script that makes several requests of one, or another picture."),
    Field("script_args", list[Any], [], None, "What it takes, in A1111's order."),
    Field("alwayson_scripts", dict[str, Any] | None, {}, None, "ControlNet, soft inpainting, refiner, seed, sampler, FreeU."),
    Field("send_images", bool, True, None, "If false, the answer has no pictures."),
    Field("save_images", bool, False, None, "Whether pictures are kept in the server's folder."),
    Field("force_task_id", str | None, None, None, "The job's name, as /internal/progress has it."),
    Field("infotext", str | None, None, None, "A1111's text: what is not given otherwise is as it says."),
)  # fmt: skip

TXT2IMG: tuple[Field, ...] = (
    *SHARED,
    Field("enable_hr", bool, False, _hires, "Make it again larger, from itself.", tuple(HIRES)),
    Field("denoising_strength", float | None, 0.75, None, "How much the second pass changes."),
    Field("hr_scale", float, 2.0, None, "So many times larger."),
    Field("hr_upscaler", str | None, None, None, "Latent if not given."),
    Field("hr_second_pass_steps", int, 0, None, "0 for as many as of the first."),
    Field("hr_resize_x", int, 0, None, "To this width instead."),
    Field("hr_resize_y", int, 0, None, "To this height."),
    Field("firstphase_width", int, 0, None, "The first pass at another size (an old way)."),
    Field("firstphase_height", int, 0, None, "… and its height."),
    Field("firstpass_image", str | None, None, None, "What the second pass goes on from, in place of a first one."),
    Field("hr_checkpoint_name", str | None, None, None, "Its model."),
    Field("hr_sampler_name", str | None, None, None, "Its sampler."),
    Field("hr_scheduler", str | None, None, None, "Its scheduler."),
    Field("hr_prompt", str, "", None, "Its prompt."),
    Field("hr_negative_prompt", str, "", None, "Its negative prompt."),
    Field(
        "hr_additional_modules", list[str] | None, None, None,
        "Its autoencoder and text encoders; none for those of its model, not given or Use same choices for the first pass's.",
    ),
    Field("hr_cfg", float | None, None, None, "Its cfg_scale."),
    Field("hr_distilled_cfg", float | None, None, None, "Its distilled_cfg_scale."),
)  # fmt: skip

IMG2IMG: tuple[Field, ...] = (
    *SHARED,
    Field("init_images", list[str] | None, [], _first_image, "One picture, or one for each of the batch.", ("image",)),
    Field(
        "resize_mode", int, 0, _chosen("resize_mode", "resize_mode", "stretch", "crop", "fill", "latent"),
        "0 stretch, 1 crop, 2 fill, 3 stretch the latent.", ("resize_mode",),
    ),
    Field("denoising_strength", float | None, 0.75, "denoising_strength", "How much of it changes, 0 to 1."),
    Field("image_cfg_scale", float | None, None, "image_cfg_scale", "How strongly the picture guides instruct-pix2pix."),
    Field("mask", str | None, None, _mask, "White where it is painted anew.", ("mask",)),
    Field("mask_blur", int | None, None, _blur, "Pixels over which the mask becomes softer.", ("mask_blur",)),
    Field("mask_blur_x", int, 4, _blur, "The same across.", ("mask_blur",)),
    Field("mask_blur_y", int, 4, _blur, "The same down.", ("mask_blur_y",)),
    Field("mask_round", bool, True, "round_mask", "Whether a pixel of the latent is wholly in or out."),
    Field(
        "inpainting_fill", int, 0,
        _chosen("inpainting_fill", "inpainting_fill", "fill", "original", "latent noise", "latent nothing"),
        "0 fill, 1 original, 2 latent noise, 3 latent nothing.", ("inpainting_fill",),
    ),
    Field(
        "inpaint_full_res", bool | int, True,
        lambda value, given: {"only_masked": bool(value and given["mask"])}, "Paint the masked part alone, at full size.",
        ("only_masked",),
    ),
    Field("inpaint_full_res_padding", int, 0, "only_masked_padding", "Pixels around it that are seen too."),
    Field(
        "inpainting_mask_invert", int, 0, lambda value, given: {"invert_mask": bool(value)}, "Paint where it is black.",
        ("invert_mask",),
    ),
    Field("initial_noise_multiplier", float | None, None, "initial_noise_multiplier", "Factor of the noise."),
    Field("latent_mask", str | None, None, _latent_mask, "What is painted in the latent, if not mask.", ("latent_mask",)),
    Field("include_init_images", bool, False, None, "Whether the answer's echo has the pictures that were sent."),
)  # fmt: skip
