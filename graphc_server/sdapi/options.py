"""Options as A1111 and Forge have them, in one table: usual values, and what they mean for settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from graphc_images import SettingError
from graphc_images.sampling import find_sampler
from graphc_images.settings import Settings as Asked
from graphc_server.errors import RequestError

Settings = dict[str, Any]


@dataclass(frozen=True)
class Option:
    """An option. `meaning` is a setting, or a function of the value and of the sampler's name that gives settings.

    Of one with `only`, no other values can be done.
    """

    name: str
    usual: Any
    meaning: str | Callable[[Any, str], Settings] | None = None
    only: tuple[Any, ...] | None = None
    none: tuple[Any, ...] = ()
    """Values that mean what a model or sampler has of its own."""

    def check(self, value: Any) -> None:
        """Raises RequestError for a value that cannot be."""
        kind = type(self.usual)
        if isinstance(self.usual, bool | str) and not isinstance(value, kind) and value is not None:
            raise RequestError(f"{self.name}: {str(value)[:60]!r} is no {'text' if kind is str else 'true or false'}")
        if isinstance(self.usual, int | float) and not isinstance(self.usual, bool):
            fits = isinstance(value, int | float) and not isinstance(value, bool)
            if not fits or value != value or abs(value) == float("inf"):
                raise RequestError(f"{self.name}: {str(value)[:60]!r} is not a number")
        if self.only is not None and value not in (self.usual, *self.only):
            raise RequestError(f"{self.name}: {str(value)[:60]!r} cannot be done; there is {self.usual!r}")
        if value is not None and value != self.usual:
            try:
                Asked.of(**self.settings(value, "Euler"))
            except SettingError as error:
                raise RequestError(f"{self.name}: {str(error).partition(': ')[2]}") from None

    def settings(self, value: Any, sampler: str) -> Settings:
        """What it means."""
        if self.meaning is None or value in self.none:
            return {}
        return {self.meaning: value} if isinstance(self.meaning, str) else self.meaning(value, sampler)


def _eta(on_times: bool) -> Callable[[Any, str], Settings]:
    """One option is for samplers on times, one for the others."""

    def read(value: float, sampler: str) -> Settings:
        try:
            fits = find_sampler(sampler, "a1111")[0].on_times == on_times
        except SettingError:
            return {}
        return {"eta": value} if fits else {}

    return read


def _whole(setting: str) -> Callable[[Any, str], Settings]:
    """A number without a fraction, which JSON may have with one."""
    return lambda value, sampler: {setting: int(value)}


def _generator(value: str, sampler: str) -> Settings:
    return {"generator": str(value).lower()}


def _zero_snr(value: str, sampler: str) -> Settings:
    return {"zero_snr": True}


def _padding(by: str) -> Callable[[Any, str], Settings]:
    return lambda value, sampler: {"pad_prompts": by} if value else {}


def _old_sigmas(value: bool, sampler: str) -> Settings:
    return {"sigma_min": 0.1, "sigma_max": 10.0}


LOOKS = {"Full": "full", "Approx NN": "rough", "Approx cheap": "rough", "TAESD": "tiny"}
"""A1111's ways of previews. We have one of those that are approximate."""

PREVIEWS = tuple(LOOKS)

OPTIONS: tuple[Option, ...] = (
    Option("sd_model_checkpoint", ""),
    Option("sd_checkpoint_hash", ""),
    Option("sd_vae", "Automatic"),
    Option("forge_additional_modules", []),
    Option("CLIP_stop_at_last_layers", 1, lambda value, sampler: {"clip_skip": int(value)}, none=(1,)),
    Option("samples_format", "png", only=("jpg", "jpeg", "webp")),
    Option("jpeg_quality", 80),
    Option("live_previews_enable", True),
    Option("show_progress_every_n_steps", 10),
    Option("show_progress_type", "Approx NN", only=PREVIEWS),
    Option("live_previews_image_format", "png", only=("jpg", "jpeg", "webp")),
    Option("randn_source", "GPU", _generator, only=("CPU", "NV"), none=("GPU",)),
    Option("eta_noise_seed_delta", 0, "eta_noise_seed_delta"),
    Option("emphasis", "Original", "emphasis", only=("No norm", "Ignore", "None")),
    Option("comma_padding_backtrack", 20, _whole("comma_backtrack")),
    Option("img2img_fix_steps", False, "fix_steps"),
    Option("img2img_color_correction", False, "color_correction"),
    Option("initial_noise_multiplier", 1.0, "initial_noise_multiplier"),
    Option("img2img_extra_noise", 0.0, "extra_noise"),
    Option("img2img_background_color", "#ffffff", "background"),
    Option("overlay_inpaint", True, "overlay"),
    Option("inpainting_mask_weight", 1.0, "mask_weight"),
    Option("s_min_uncond", 0.0, "s_min_uncond"),
    Option("s_min_uncond_all", False, "s_min_uncond_all"),
    Option("skip_early_cond", 0.0, "skip_early_cfg"),
    Option("eta_ddim", 0.0, _eta(on_times=True)),
    Option("eta_ancestral", 1.0, _eta(on_times=False), none=(1.0,)),
    Option("s_churn", 0.0, "s_churn"),
    Option("s_tmin", 0.0, "s_tmin"),
    Option("s_tmax", 0.0, "s_tmax", none=(0,)),
    Option("s_noise", 1.0, "s_noise"),
    Option("use_old_karras_scheduler_sigmas", False, _old_sigmas, none=(False,)),
    Option("sigma_min", 0.0, "sigma_min", none=(0,)),
    Option("sigma_max", 0.0, "sigma_max", none=(0,)),
    Option("rho", 0.0, "rho", none=(0,)),
    Option("always_discard_next_to_last_sigma", False, "discard_next_to_last_sigma", none=(False,)),
    Option("sgm_noise_multiplier", False, "more_noise"),
    Option("uni_pc_variant", "bh1", "uni_pc_variant", only=("bh2",)),
    Option("uni_pc_skip_type", "time_uniform", "uni_pc_skip", only=("time_quadratic",)),
    Option("uni_pc_order", 3, _whole("uni_pc_order")),
    Option("uni_pc_lower_order_final", True, "uni_pc_lower_order_final"),
    Option("sd_noise_schedule", "Default", _zero_snr, only=("Zero Terminal SNR",), none=("Default",)),
    Option("beta_dist_alpha", 0.6, "beta_alpha"),
    Option("beta_dist_beta", 0.6, "beta_beta"),
    Option("tiling", False, lambda value, sampler: {"tiling": "on" if value else "off"}),
    Option("face_restoration", False, only=()),
    Option("face_restoration_model", "CodeFormer"),
    Option("code_former_weight", 0.5),
    Option("upscaler_for_img2img", "None", "resize_upscaler", none=("", None)),
    Option("ESRGAN_tile", 192, _whole("upscale_tile")),
    Option("ESRGAN_tile_overlap", 8, _whole("upscale_overlap")),
    Option("token_merging_ratio", 0.0, only=()),
    Option("token_merging_ratio_img2img", 0.0, only=()),
    Option("token_merging_ratio_hr", 0.0, only=()),
    Option("sdxl_crop_top", 0, _whole("crop_top")),
    Option("sdxl_crop_left", 0, _whole("crop_left")),
    Option("sdxl_refiner_low_aesthetic_score", 2.5, "low_score"),
    Option("sdxl_refiner_high_aesthetic_score", 6.0, "high_score"),
    Option("sd3_enable_t5", False),
    Option("enable_pnginfo", True),
    Option("add_model_hash_to_info", True),
    Option("add_model_name_to_info", True),
    Option("add_vae_hash_to_info", True),
    Option("add_vae_name_to_info", True),
    Option("add_version_to_infotext", True),
    Option("return_grid", True),
    Option("return_mask", False),
    Option("return_mask_composite", False),
    Option("use_old_scheduling", False, "old_timelines"),
    Option("use_old_emphasis_implementation", False, "old_emphasis"),
    Option("use_old_hires_fix_width_height", False),
    Option("use_downcasted_alpha_bar", False, "half_alphas"),
    Option("pad_cond_uncond", False, _padding("empty")),
    Option("pad_cond_uncond_v0", False, _padding("last")),
    Option("enable_batch_seeds", True),
    Option("no_dpmpp_sde_batch_determinism", False, "shared_brownian"),
    Option("hires_fix_refiner_pass", "second pass", "hires_refiner", only=("first pass", "both passes")),
    Option("hires_fix_use_firstpass_conds", False, "hires_same_networks"),
    Option("refiner_switch_by_sample_steps", False, "refiner_by_steps"),
    Option("sd_unet", "Automatic", only=("None",)),
    Option("sd_hypernetwork", "None", only=("",)),
    Option("sd_vae_encode_method", "Full", only=()),
    Option("sd_vae_decode_method", "Full", only=()),
    Option("sdxl_clip_l_skip", False, only=()),
    Option("enable_quantization", False, only=()),
    Option("fp8_storage", "Disable", only=()),
)
"""Of those that name no meaning, some are read where models are chosen and pictures written; the others have no effect on
pictures here, or `only` some values."""

LABELS = {
    "add_model_hash_to_info": "Model hash",
    "add_model_name_to_info": "Model",
    "add_vae_hash_to_info": "VAE hash",
    "add_vae_name_to_info": "VAE",
    "add_version_to_infotext": "Version",
}
"""Options of which each says whether a label is in the texts of pictures."""

PARTS = {"return_mask": "mask", "return_mask_composite": "painted"}
"""Options of which each says whether a part of a picture comes behind it."""

BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}
USUAL: Mapping[str, Any] = {option.name: option.usual for option in OPTIONS}


def checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same; raises RequestError for an option with a value that cannot be. Unknown ones are kept as they are."""
    for name, value in values.items():
        if name in BY_NAME:
            BY_NAME[name].check(value)
    return dict(values)


def settings_of_options(values: Mapping[str, Any], sampler: str) -> Settings:
    """What options that are not as usual mean for a picture."""
    found: Settings = {}
    for option in OPTIONS:
        value = values.get(option.name, option.usual)
        if value is not None and value != option.usual:
            found |= option.settings(value, sampler)
    return found
