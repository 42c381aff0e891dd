"""The parameters of a picture, in one table: what each is called, what it may be, and which models have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from graphc_images import Settings
from graphc_images.models import Architecture
from graphc_images.pictures.blending import SoftInpainting
from graphc_images.plots import NUMBERS, SPECIAL
from graphc_images.resolving import unit_of
from graphc_images.sampling import SAMPLERS, SCHEDULERS
from graphc_images.sampling.guidance import DynamicThreshold, FreeU, Frequencies, Projected
from graphc_images.settings import CHOICES, LARGEST_SEED, RANGES
from graphc_server.own.controls import Control

Kind = Literal["text", "whole", "number", "switch", "choice", "picture", "pictures", "record", "controls"]
RECORDS: Mapping[str, type] = {
    "soft_inpainting": SoftInpainting,
    "apg": Projected,
    "dynamic_thresholding": DynamicThreshold,
    "fresca": Frequencies,
    "free_u": FreeU,
}
HIGHEST = {
    "width": 4096, "height": 4096, "batch_size": 16, "batches": 64, "steps": 150, "cfg_scale": 30, "guidance": 30,
    "image_cfg_scale": 10, "clip_skip": 12, "eta_noise_seed_delta": LARGEST_SEED, "t5_mask_pad": 512, "eta": 2, "s_churn": 10,
    "s_tmin": 20, "s_tmax": 100, "s_noise": 2, "sigma_min": 20, "sigma_max": 100, "rho": 20, "s_min_uncond": 15,
    "cfg_norm": 10, "perp_neg": 10, "pag_scale": 20, "slg_scale": 20, "initial_noise_multiplier": 2, "extra_noise": 1,
    "mask_blur": 64, "only_masked_padding": 256, "hires_scale": 4, "hires_width": 4096, "hires_height": 4096,
    "hires_steps": 150, "hires_cfg_scale": 30, "hires_guidance": 30, "beta_alpha": 2, "beta_beta": 2, "uni_pc_order": 8,
    "crop_top": 1024, "crop_left": 1024, "low_score": 10, "high_score": 10, "comma_backtrack": 75, "vae_tile": 2048,
    "mask_blur_y": 64, "upscale_tile": 1024, "upscale_overlap": 128,
}  # fmt: skip
"""To where a slider goes; a number that is typed may be higher, if `RANGES` allows it."""

LOWEST = {
    "cfg_scale": 0,
    "image_cfg_scale": 0,
    "hires_cfg_scale": 0,
    "eta_noise_seed_delta": 0,
    "seed": -1,
    "subseed": -1,
}
STEPS: Mapping[str, float] = {
    "cfg_scale": 0.5,
    "guidance": 0.5,
    "hires_cfg_scale": 0.5,
    "mask_blur": 1,
    "hires_scale": 0.05,
}

Has = Callable[[Architecture], bool]


def every(model: Architecture) -> bool:
    """Every model."""
    return True


def guided(model: Architecture) -> bool:
    """Those that people guide by a negative prompt."""
    return model.defaults.cfg > 1


def is_unet(model: Architecture) -> bool:
    """U-Nets."""
    return model.kind == "unet"


def skips(model: Architecture) -> bool:
    """Those of which an earlier layer of the text encoder may count."""
    return is_unet(model) and "clip_l" in model.text


def refined(model: Architecture) -> bool:
    """Those that have a refiner."""
    return model.sizes == 6


@dataclass(frozen=True)
class Parameter:
    """A setting as people see it: `label`, the `group` that it is shown with, and what it is (`says`).

    `when` names what must be so, that it has an effect: `image`, `mask`, `hires`, `cfg`, `only_masked`, `subseed_strength`, or
    `sampler` for what not every sampler takes. It is `rare` if most people never touch it.
    """

    name: str
    label: str
    group: str
    kind: Kind
    says: str = ""
    has: Has = every
    when: str = ""
    rare: bool = False
    choices: Sequence[str] = ()

    @property
    def type(self) -> Any:
        """What a request has for it."""
        types: Mapping[Kind, Any] = {
            **{"text": str, "choice": str, "picture": str, "pictures": list[str]},
            **{
                "whole": int,
                "number": float,
                "switch": bool,
                "record": dict[str, float | bool | str],
                "controls": list[Control],
            },
        }
        return types[self.kind]

    def described(self, model: Architecture) -> dict[str, Any]:
        """For a model, as JSON."""
        found: dict[str, Any] = {
            **{"name": self.name, "label": self.label, "group": self.group, "kind": self.kind, "says": self.says},
            **{"when": self.when, "rare": self.rare, "usual": usual(self.name, model)},
        }
        if self.kind in ("whole", "number"):
            least, most, _ = RANGES[self.name]
            unit = unit_of(model) if self.name in ("width", "height", "hires_width", "hires_height") else 0
            step = unit or STEPS.get(self.name, 1 if self.kind == "whole" else 0.01 if most <= 2 else 0.1)
            found |= {"least": max(LOWEST.get(self.name, least), unit), "step": step}
            found |= {"most": min(HIGHEST.get(self.name, most), most)}
        if self.kind == "choice":
            found["choices"] = list(self.choices or CHOICES.get(self.name, ()))
        if self.kind == "record":
            made = RECORDS[self.name]()
            found["parts"] = {each.name: getattr(made, each.name) for each in fields(made) if each.init}
        return found


def usual(name: str, model: Architecture) -> Any:
    """What a setting is if nobody gives it."""
    own = {**asdict(model.defaults), "cfg_scale": model.defaults.cfg}
    value = own[name] if name in own else getattr(Settings(), name)
    return None if value == float("inf") else value


def _samplers() -> list[str]:
    return list(dict.fromkeys(each.label for each in SAMPLERS if each.label and each.only != "comfyui"))


def _schedulers() -> list[str]:
    return [each.label or each.name for each in SCHEDULERS]


P = Parameter
MODES, NOISES = ("a1111", "comfyui"), ("gpu", "cpu", "nv")

PARAMETERS: tuple[Parameter, ...] = (
    P("prompt", "Prompt", "prompt", "text", "What is to be seen."),
    P("negative_prompt", "Negative prompt", "prompt", "text", "What is not to be seen.", when="cfg"),
    P("width", "Width", "size", "whole", "In pixels."),
    P("height", "Height", "size", "whole", "In pixels."),
    P("batches", "Batches", "size", "whole", "One after the other, each with the seeds that follow."),
    P("batch_size", "Batch size", "size", "whole", "Pictures that go through the model together."),
    P("steps", "Steps", "sampling", "whole", "More are finer, and take longer."),
    P("sampler", "Sampler", "sampling", "choice", "How noise becomes a picture.", choices=_samplers()),
    P("scheduler", "Schedule", "sampling", "choice", "Through which levels of noise.", choices=_schedulers()),
    P("cfg_scale", "Guidance (CFG)", "sampling", "number", "How strongly the prompt guides."),
    P("guidance", "Distilled guidance", "sampling", "number", "The same, learned by the model.",
      lambda model: model.defaults.guidance is not None),
    P("image_cfg_scale", "Picture guidance", "sampling", "number", "How strongly the picture that is changed guides.",
      lambda model: model.added == "edit"),
    P("clip_skip", "Clip skip", "sampling", "whole", "Which layer of the text encoder counts, from the last.", skips),
    P("seed", "Seed", "seed", "whole", "The same seed makes the same picture; -1 for any."),
    P("subseed", "Variation seed", "seed", "whole", "Towards the noise of another seed; -1 for any.",
      when="subseed_strength"),
    P("subseed_strength", "Variation", "seed", "number", "How far towards it."),
    P("image", "Picture", "picture", "picture", "The picture to begin with."),
    P("denoising_strength", "Change", "picture", "number", "How much of the picture changes.", when="image"),
    P("resize_mode", "If the shape differs", "picture", "choice", "How the picture comes to the size.", when="image"),
    P("resize_upscaler", "Enlarge it by", "picture", "choice", "If it is smaller than the size.", when="image", rare=True,
      choices=("None",)),
    P("color_correction", "Keep its colours", "picture", "switch", "Match the colours of the picture.", when="image"),
    P("mask", "Mask", "mask", "picture", "White where the picture is painted anew.", when="image"),
    P("inpainting_fill", "Begin with", "mask", "choice", "What lies under the mask before.", when="mask"),
    P("mask_blur", "Softness", "mask", "number", "Pixels over which the mask's edge fades.", when="mask"),
    P("only_masked", "Only the masked part", "mask", "switch", "Paint that part alone, at full size.", when="mask"),
    P("only_masked_padding", "Seen around it", "mask", "whole", "Pixels around that part.", when="only_masked"),
    P("invert_mask", "The other way round", "mask", "switch", "Paint what is not masked.", when="mask"),
    P("differential", "Grey means later", "mask", "switch", "A grey mask says when a pixel begins to change.",
      when="mask", rare=True),
    P("mask_blur_y", "Softness down", "mask", "number", "If it is another than across.", when="mask", rare=True),
    P("overlay", "Keep the rest", "mask", "switch", "Put what is not masked over the result.", when="mask", rare=True),
    P("round_mask", "Whole blocks", "mask", "switch", "A block of the latent is wholly in or out.", when="mask", rare=True),
    P("mask_weight", "Hide what is masked", "mask", "number", "From the model: all of it at 1.",
      lambda model: model.added == "inpaint", when="mask", rare=True),
    P("soft_inpainting", "Soft inpainting", "mask", "record", "Blends old and new by how much they differ.",
      when="mask", rare=True),
    P("hires_scale", "Enlarge", "again", "number", "Above 1, the picture is made again larger, from itself."),
    P("hires_width", "To the width", "again", "whole", "In place of a factor.", rare=True),
    P("hires_height", "To the height", "again", "whole", "In place of a factor.", rare=True),
    P("hires_upscaler", "By", "again", "choice", "What makes it larger.", when="hires", choices=("Latent",)),
    P("hires_denoising_strength", "Change", "again", "number", "How much of it changes.", when="hires"),
    P("hires_steps", "Steps", "again", "whole", "As many as of the first pass if not given.", when="hires"),
    P("hires_sampler", "Sampler", "again", "choice", "The first pass's if not given.", when="hires", rare=True,
      choices=_samplers()),
    P("hires_scheduler", "Schedule", "again", "choice", "The first pass's if not given.", when="hires", rare=True,
      choices=_schedulers()),
    P("hires_cfg_scale", "Guidance (CFG)", "again", "number", "The first pass's if not given.", when="hires", rare=True),
    P("hires_guidance", "Distilled guidance", "again", "number", "The first pass's if not given.",
      lambda model: model.defaults.guidance is not None, when="hires", rare=True),
    P("hires_checkpoint", "Model", "again", "choice", "The same if not given.", when="hires", rare=True),
    P("hires_refiner", "Refiner in", "again", "choice", "The pass in which it has its turn.", refined, "hires", True),
    P("hires_prompt", "Prompt", "again", "text", "The first pass's if not given.", when="hires", rare=True),
    P("hires_negative_prompt", "Negative prompt", "again", "text", "The first pass's if not given.", when="hires", rare=True),
    P("controls", "ControlNet", "control", "controls", "Edges, depth, or other pictures that the picture follows.",
      lambda model: bool(model.family)),
    P("control_image", "Edges or depth", "references", "picture", "What the picture follows.",
      lambda model: model.added == "control"),
    P("reference_images", "References", "references", "pictures", "Pictures that the model looks at.",
      lambda model: model.refers and not model.extra),
    P("numbered_references", "Numbered", "references", "switch", "One is numbered as several are; for Edit since 2509.",
      lambda model: model.kind == "qwen_image", rare=True),
    P("refiner", "Refiner", "refiner", "choice", "A second model that finishes the picture.", refined),
    P("refiner_by_steps", "Share of steps", "refiner", "switch", "Not of the model's times.", refined, "refiner", True),
    P("refiner_switch_at", "From", "refiner", "number", "At which share of the way.", refined, when="refiner"),
    P("low_score", "Score of the negative", "refiner", "number", "Beauty that it is told.", refined, "refiner", True),
    P("high_score", "Score of the prompt", "refiner", "number", "Beauty that it is told.", refined, "refiner", True),
    P("tiling", "Seamless", "more", "choice", "The picture continues at its other edge.", is_unet),
    P("pag_scale", "Perturbed attention", "guidance", "number", "Away from a model that looks less closely; 3 is usual.",
      is_unet, rare=True),
    P("slg_scale", "Skipped layers", "guidance", "number", "Away from a model without some layers; 3 is usual.",
      lambda model: model.kind == "sd3", rare=True),
    P("slg_start", "Skipped from", "guidance", "number", "Share of the way.", lambda model: model.kind == "sd3", rare=True),
    P("slg_end", "Skipped until", "guidance", "number", "Share of the way.", lambda model: model.kind == "sd3", rare=True),
    P("cfg_rescale", "Rescaled", "guidance", "number", "Less contrast where guidance is strong.", guided, "cfg", True),
    P("skip_early_cfg", "Skip early", "guidance", "number", "No guidance in this share of the first steps.", guided, "cfg", True),
    P("s_min_uncond", "Skip low noise", "guidance", "number", "Noise below which each second step has none.",
      guided, "cfg", True),
    P("s_min_uncond_all", "Skip in each step", "guidance", "switch", "Below that noise.", guided, "cfg", True),
    P("cfg_zero_star", "CFG-Zero*", "guidance", "switch", "For flow models.", guided, "cfg", True),
    P("mahiro", "Mahiro", "guidance", "switch", "Towards the prompt's direction.", guided, "cfg", True),
    P("cfg_lengths", "CFG lengths", "guidance", "switch", "The noise stays as strong; for Qwen-Image.", guided, "cfg", True),
    P("cfg_norm", "CFG norm", "guidance", "number", "Guidance is not longer than the estimate, times this.",
      guided, "cfg", True),
    P("perp_neg", "Perpendicular negative", "guidance", "number", "Of the negative prompt, what lies across.",
      guided, "cfg", True),
    P("tangential_damping", "Tangential damping", "guidance", "switch", "", guided, "cfg", True),
    P("apg", "Projected (APG)", "guidance", "record", "Less of what only makes colours stronger.", guided, "cfg", True),
    P("dynamic_thresholding", "Dynamic thresholding", "guidance", "record", "A high scale with the spread of a lower one.",
      guided, "cfg", True),
    P("fresca", "FreSca", "guidance", "record", "Fine structure is stronger.", guided, "cfg", True),
    P("free_u", "FreeU", "guidance", "record", "What the decoder takes in is scaled.", is_unet, rare=True),
    P("epsilon_scaling", "Epsilon scaling", "guidance", "number", "1.005 is usual where it is used.", rare=True),
    P("eta", "Eta", "noise", "number", "How much noise the sampler adds.", when="sampler", rare=True),
    P("s_churn", "Churn", "noise", "number", "Noise added before steps.", when="sampler", rare=True),
    P("s_tmin", "Churn from", "noise", "number", "Lowest level of noise.", when="sampler", rare=True),
    P("s_tmax", "Churn until", "noise", "number", "Highest level of noise.", when="sampler", rare=True),
    P("s_noise", "Noise factor", "noise", "number", "", when="sampler", rare=True),
    P("sigma_min", "Lowest level", "noise", "number", "Of the schedule; the model's own if not given.", rare=True),
    P("sigma_max", "Highest level", "noise", "number", "Of the schedule; the model's own if not given.", rare=True),
    P("rho", "Rho", "noise", "number", "How the schedule bends.", rare=True),
    P("discard_next_to_last_sigma", "Leave the last but one out", "noise", "switch", "", rare=True),
    P("generator", "Random numbers", "noise", "choice", "As a GPU's or a CPU's.", rare=True, choices=NOISES),
    P("eta_noise_seed_delta", "Seed of added noise", "noise", "whole", "Added to the seed.", rare=True),
    P("initial_noise_multiplier", "Noise on the picture", "noise", "number", "Factor.", when="image", rare=True),
    P("extra_noise", "Extra noise", "noise", "number", "On the picture.", when="image", rare=True),
    P("fix_steps", "All steps", "noise", "switch", "As many as asked for, also for a small change.", when="image", rare=True),
    P("beta_alpha", "Alpha", "noise", "number", "Of the schedule Beta.", when="beta", rare=True),
    P("beta_beta", "Beta", "noise", "number", "Of the schedule Beta.", when="beta", rare=True),
    P("uni_pc_variant", "UniPC's variant", "noise", "choice", when="sampler", rare=True),
    P("uni_pc_skip", "UniPC's times", "noise", "choice", when="sampler", rare=True),
    P("uni_pc_order", "UniPC's order", "noise", "whole", "How far steps look back.", when="sampler", rare=True),
    P("uni_pc_lower_order_final", "UniPC's last steps look back less", "noise", "switch", when="sampler", rare=True),
    P("more_noise", "As much noise as ComfyUI", "noise", "switch", "At the start.", rare=True),
    P("zero_snr", "Noise alone at the start", "noise", "switch", "Zero terminal SNR.", is_unet, rare=True),
    P("half_alphas", "Levels of 16 bits", "noise", "switch", "A1111's downcasted alphas.", is_unet, rare=True),
    P("shared_brownian", "One noise for a batch", "noise", "switch", "Of samplers with Brownian noise.", rare=True),
    P("pad_prompts", "Fill up shorter prompts", "more", "choice", "By the empty one, or the last word.", guided, "cfg", True),
    P("old_emphasis", "Old emphasis", "more", "switch", "Brackets as in A1111's first versions.", skips, rare=True),
    P("old_timelines", "Old timelines", "more", "switch", "[from:to:when] as in A1111's first versions.", rare=True),
    P("comma_backtrack", "Cut long prompts at commas", "more", "whole", "Among so many tokens at the end of a chunk.", rare=True),
    P("crop_top", "Cut off at the top", "more", "whole", "Pixels that the model is told.", refined, rare=True),
    P("crop_left", "Cut off at the left", "more", "whole", "Pixels that the model is told.", refined, rare=True),
    P("emphasis", "Emphasis", "more", "choice", "What (words:1.2) do.", rare=True),
    P("mode", "Same as", "more", "choice", "Whose pictures these are, seed by seed.", rare=True, choices=MODES),
    P("t5_mask_pad", "Padding that is seen", "more", "whole", "Behind the text.", lambda model: model.kind == "chroma",
      rare=True),
    P("vae_tiling", "Decode in tiles", "more", "choice", "Takes less memory.", rare=True),
    P("vae_tile", "Side of a tile", "more", "whole", "In pixels.", rare=True),
    P("upscale_tile", "Side of an upscaler's tile", "more", "whole", "In pixels; 0 for the whole at once.", rare=True),
    P("upscale_overlap", "Overlap of its tiles", "more", "whole", "In pixels.", rare=True),
)  # fmt: skip
"""In the order in which they are shown."""

BY_NAME: Mapping[str, Parameter] = {each.name: each for each in PARAMETERS}

OF_ALL = {"eta", "s_churn", "s_tmin", "s_tmax", "s_noise"}
OF_SAMPLERS: Mapping[str, list[str]] = {
    each.label: [
        *sorted(each.takes & OF_ALL),
        *(one.name for one in PARAMETERS if each.label.startswith("UniPC") and one.name.startswith("uni_pc")),
    ]
    for each in SAMPLERS
    if each.label
}
"""What a sampler takes besides, by its label."""


def parameters_of(
    model: Architecture, upscalers: Sequence[str], models: Sequence[str], controls: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The parameters that a model has. `upscalers`, `models` and `controls` are the names that the folders have; without any of
    these last, nothing can be controlled."""
    plain = [name for name in upscalers if not name.startswith("Latent")]
    more = {
        "hires_upscaler": upscalers,
        "resize_upscaler": plain,
        "refiner": models,
        "hires_checkpoint": models,
        "controls": controls,
    }
    found = [each.described(model) for each in PARAMETERS if each.has(model) and (controls or each.kind != "controls")]
    return [{**each, "choices": list(more[each["name"]])} if each["name"] in more else each for each in found]


def axes_of(model: Architecture, upscalers: Sequence[str]) -> list[dict[str, Any]]:
    """The axes of plots that mean something to a model, with the values of those that are words."""
    known = {each["name"]: each for each in parameters_of(model, upscalers, [])}
    axes = [
        {"name": name, "kind": kind.__name__, "choices": known[setting].get("choices", [])}
        for name, (setting, kind) in NUMBERS.items()
        if setting in known
    ]
    return [*axes, *({"name": name, "kind": "str", "choices": []} for name in SPECIAL)]
