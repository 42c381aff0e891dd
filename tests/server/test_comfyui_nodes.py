"""Every node of ComfyUI that is in the table, carried out on small models of each architecture."""

import numpy as np
import pytest
from graphs import IMAGES, Bench, changed, node, picture, write_lora
from PIL import Image
from safetensors.numpy import save_file
from served import content_of, written

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
pytestmark = pytest.mark.torch

from graphc_images import SettingError  # noqa: E402
from graphc_images.tokenizers import QwenTokenizer  # noqa: E402
from graphc_server.comfyui import checking, nodes  # noqa: E402
from graphc_server.comfyui.table import CHOICE, NODES, WIDGETS  # noqa: E402

FILES = {
    "sd1": "Stable Diffusion 1", "inpaint": "Stable Diffusion 1 inpainting", "edit": "Stable Diffusion 1 instruct-pix2pix",
    "xl": "Stable Diffusion XL", "refiner": "Stable Diffusion XL refiner", "sd3": "Stable Diffusion 3.5 medium",
    "flux": "Flux dev", "fill": "Flux Fill", "chroma": "Chroma", "z": "Z-Image", "qwen": "Qwen-Image", "klein": "Flux.2 klein 4B",
}  # fmt: skip
FOLDERS = (
    "checkpoints",
    "diffusion_models",
    "text_encoders",
    "vae",
    "loras",
    "controlnet",
    "upscale_models",
    "embeddings",
    "preprocessors",
    "clip_vision",
    "ipadapter",
    "inpaint",
)


SPOT = Image.new("L", (64, 64))
SPOT.paste(255, (8, 16, 48, 40))
SPOT_TEXT = written(SPOT)


def write_preprocessor(folder):
    """A network for all nodes that want one: a picture in, the same picture out."""
    import onnx
    from onnx import helper

    sizes = ["batch", 3, "height", "width"]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, sizes) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "same", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    words = "_".join(words[0] for _, words in nodes.hints.NETWORKS.values())
    onnx.save(model, folder / f"{words}.onnx")


def part(tensors, prefix):
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """A bench whose library has small files of all kinds."""
    from architecture_models import ENGINES, SMALL, VARIANTS
    from test_controls import KINDS, original_controlnet
    from test_ip_adapters import FAMILIES, KNOWN
    from test_ip_adapters import files as adapter_files
    from test_qwen_edit import visual
    from test_upscalers import Compact, seeded

    root = tmp_path_factory.mktemp("comfyui")
    place = {name: root / "models" / name for name in FOLDERS}
    for folder in place.values():
        folder.mkdir(parents=True)
    known = {**SMALL, **VARIANTS}
    for file, name in FILES.items():
        known[name].write(place["checkpoints"], name=f"{file}.safetensors")
    weights = known["Flux dev"].weights()
    prefixes = {
        "diffusion_models/unet": "model.diffusion_model.", "vae/ae": "first_stage_model.",
        "text_encoders/clip_l": "text_encoders.clip_l.transformer.", "text_encoders/t5": "text_encoders.t5xxl.transformer.",
    }  # fmt: skip
    for file, prefix in prefixes.items():
        save_file(part(weights, prefix), root / "models" / f"{file}.safetensors")
    sd3 = known["Stable Diffusion 3.5 medium"].weights()
    save_file(part(sd3, "text_encoders.clip_g.transformer."), place["text_encoders"] / "clip_g.safetensors")
    z = known["Z-Image"].weights()
    (beginning,) = {name[: name.index("layers.0.")] for name in z if name.endswith("layers.0.mlp.gate_proj.weight")}
    beginning = beginning.removesuffix("model.")
    save_file(part(z, beginning), place["text_encoders"] / "qwen.safetensors")
    qwen = known["Qwen-Image"].weights()
    for file, prefix in {
        "diffusion_models/qwen_image": "model.diffusion_model.", "vae/qwen_image_vae": "first_stage_model.",
        "text_encoders/qwen_2.5_vl_7b": "text_encoders.qwen25_7b.transformer.",
    }.items():  # fmt: skip
        save_file(part(qwen, prefix), root / "models" / f"{file}.safetensors")
    klein = known["Flux.2 klein 4B"].weights()
    save_file(part(klein, "model.diffusion_model."), root / "models" / "diffusion_models" / "klein.safetensors")
    save_file(part(klein, "first_stage_model."), root / "models" / "vae" / "klein_vae.safetensors")
    (text,) = {
        name[: name.index("model.layers.0.")] for name in klein if name.endswith("layers.0.mlp.gate_proj.weight")
    }
    save_file(part(klein, text), root / "models" / "text_encoders" / "klein_qwen.safetensors")
    save_file({**qwen, **visual(np.float32)}, place["checkpoints"] / "seeing.safetensors")
    write_lora(place["loras"] / "style.safetensors")
    from architecture_models import original

    save_file(
        {f"control_model.{name}": each for name, each in original_controlnet(original.SD1).items()},
        place["controlnet"] / "edges.safetensors",
    )
    save_file(
        {name: each.numpy() for name, each in seeded(Compact(scale=2)).state_dict().items()},
        place["upscale_models"] / "double.safetensors",
    )
    write_preprocessor(place["preprocessors"])
    adapter, vision, _ = adapter_files(root, "Stable Diffusion 1", "plus")
    adapter.rename(place["ipadapter"] / "adapter.safetensors")
    vision.rename(place["clip_vision"] / "vision.safetensors")
    (place["inpaint"] / "nobody_opens_it.safetensors").write_bytes(b"")
    rows = sorted((each.architecture for each in known.values()), key=lambda row: -len(row.marks))
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr("graphc_images.models.encoders.CLIPS", {16: "clip_l", 32: "clip_g", 48: "clip_l"})
    monkeypatch.setattr("graphc_images.models.ip_adapters.ENCODERS", KNOWN)
    for area in ("EDITED_PIXELS", "LOOKED_AT_PIXELS"):
        monkeypatch.setattr(f"graphc_images.seen.{area}", 64 * 64)
    made = Bench(
        root / "data",
        root / "models",
        engines=ENGINES,
        architectures=rows,
        controls=KINDS,
        adapters=[FAMILIES["Stable Diffusion 1"][1]],
    )
    picture(alpha=True).save(made.files.folders["input"] / "picture.png")
    made.files.handed.put("picture", content_of(picture(alpha=True)))
    yield made
    monkeypatch.undo()


def base(file="sd1"):
    """What inputs are linked to, by their types."""
    return {
        "ckpt": node("CheckpointLoaderSimple", ckpt_name=f"{file}.safetensors"),
        "text": node("CLIPTextEncode", text="a red circle", clip=["ckpt", 1]),
        "other": node("CLIPTextEncode", text="", clip=["ckpt", 1]),
        "latent": node("EmptyLatentImage", width=64, height=64, batch_size=1),
        "picture": node("LoadImage", image="picture.png"),
        "sigmas": node("BasicScheduler", model=["ckpt", 0], scheduler="normal", steps=2, denoise=1.0),
        "sampler": node("KSamplerSelect", sampler_name="euler"),
        "noise": node("RandomNoise", noise_seed=1),
        "guider": node("CFGGuider", model=["ckpt", 0], positive=["text", 0], negative=["other", 0], cfg=5.0),
        "control": node("ControlNetLoader", control_net_name="edges.safetensors"),
        "encoded": node("VAEEncode", pixels=["picture", 0], vae=["ckpt", 2]),
        "upscaler": node("UpscaleModelLoader", model_name="double.safetensors"),
        "tiles": node("ETN_TileLayout", image=["picture", 0], min_tile_size=64, padding=16, blending=8, multiple=8),
        "spot": node("ETN_LoadMaskBase64", mask=SPOT_TEXT),
        "vision": node("CLIPVisionLoader", clip_name="vision.safetensors"),
        "adapter": node("IPAdapterModelLoader", ipadapter_file="adapter.safetensors"),
        "seen": node(
            "IPAdapterEncoder", ipadapter=["adapter", 0], image=["picture", 0], weight=1.0, clip_vision=["vision", 0]
        ),
    }


SOURCES = {
    "MODEL": ["ckpt", 0], "CLIP": ["ckpt", 1], "VAE": ["ckpt", 2], "CONDITIONING": ["text", 0], "LATENT": ["latent", 0],
    "IMAGE": ["picture", 0], "MASK": ["picture", 1], "SIGMAS": ["sigmas", 0], "SAMPLER": ["sampler", 0],
    "NOISE": ["noise", 0], "GUIDER": ["guider", 0], "CONTROL_NET": ["control", 0], "UPSCALE_MODEL": ["upscaler", 0],
    "TileLayout": ["tiles", 0], "CLIP_VISION": ["vision", 0], "IPADAPTER": ["adapter", 0], "EMBEDS": ["seen", 0],
}  # fmt: skip


def sampled(**links):
    usual = {"model": ["ckpt", 0], "positive": ["text", 0], "negative": ["other", 0], "latent_image": ["latent", 0]}
    usual |= {"seed": 1, "steps": 2, "cfg": 5.0, "sampler_name": "euler", "scheduler": "normal", "denoise": 1.0}
    return {"sampled": node("KSampler", **{**usual, **links})}


def decoded(link):
    return {"decoded": node("VAEDecode", samples=link, vae=["ckpt", 2]), **shown(["decoded", 0])}


def shown(link):
    return {"end": node("PreviewImage", images=link)}


def custom(**links):
    usual = {name: SOURCES[name.upper()] for name in ("noise", "guider", "sampler", "sigmas")}
    return {
        "sampled": node("SamplerCustomAdvanced", **{**usual, **links}, latent_image=["latent", 0]),
        **decoded(["sampled", 0]),
    }


SINKS = {
    "IMAGE": shown,
    "MASK": lambda link: {"seen": node("MaskToImage", mask=link), **shown(["seen", 0])},
    "LATENT": decoded,
    "MODEL": lambda link: {**sampled(model=link), **decoded(["sampled", 0])},
    "CONDITIONING": lambda link: {**sampled(positive=link), **decoded(["sampled", 0])},
    "CLIP": lambda link: {
        "read": node("CLIPTextEncode", text="a (red:1.3) circle", clip=link), **sampled(positive=["read", 0]),
        **decoded(["sampled", 0]),
    },
    "VAE": lambda link: {**sampled(), "decoded": node("VAEDecode", samples=["sampled", 0], vae=link), **shown(["decoded", 0])},
    "CONTROL_NET": lambda link: {
        "steered": node("ControlNetApply", conditioning=["text", 0], control_net=link, image=["picture", 0], strength=1.0),
        **sampled(positive=["steered", 0]), **decoded(["sampled", 0]),
    },
    "UPSCALE_MODEL": lambda link: {
        "large": node("ImageUpscaleWithModel", upscale_model=link, image=["picture", 0]), **shown(["large", 0]),
    },
    "SIGMAS": lambda link: custom(sigmas=link), "SAMPLER": lambda link: custom(sampler=link),
    "TileLayout": lambda link: {
        "cut": node("ETN_ExtractImageTile", image=["picture", 0], layout=link, index=1), **shown(["cut", 0]),
    },
    "CLIP_VISION": lambda link: SINKS["IPADAPTER"](["adapter", 0], link),
    "IPADAPTER": lambda link, vision=("vision", 0): {
        "looked": node("IPAdapterEncoder", ipadapter=link, image=["picture", 0], weight=1.0, clip_vision=list(vision)),
        **SINKS["EMBEDS"](["looked", 0]),
    },
    "EMBEDS": lambda link: {
        "looks": node(
            "IPAdapterEmbeds", model=["ckpt", 0], ipadapter=["adapter", 0], pos_embed=link, weight=1.0, weight_type="linear",
            start_at=0.0, end_at=1.0, embeds_scaling="V only", clip_vision=["vision", 0],
        ),
        **SINKS["MODEL"](["looks", 0]),
    },
    "NOISE": lambda link: custom(noise=link), "GUIDER": lambda link: custom(guider=link),
    "INT": lambda link: {"empty": node("EmptyImage", width=link, height=16, batch_size=1, color=255), **shown(["empty", 0])},
    "FLOAT": lambda link: {"solid": node("SolidMask", value=link, width=16, height=16), **SINKS["MASK"](["solid", 0])},
    "STRING": lambda link: {"read": node("CLIPTextEncode", text=link, clip=["ckpt", 1]), **SINKS["CONDITIONING"](["read", 0])},
    "BOOLEAN": lambda link: {
        "inpaint": node(
            "InpaintModelConditioning", positive=["text", 0], negative=["other", 0], vae=["ckpt", 2], pixels=["picture", 0],
            mask=["picture", 1], noise_mask=link,
        ),
        **decoded(["inpaint", 2]),
    },
}  # fmt: skip

ONLY = {
    "CLIPTextEncodeSDXL": "xl", "CLIPTextEncodeSDXLRefiner": "refiner", "CLIPTextEncodeFlux": "flux", "FluxGuidance": "flux",
    "FluxDisableGuidance": "flux", "CLIPTextEncodeSD3": "sd3", "ModelSamplingSD3": "sd3", "ModelSamplingAuraFlow": "sd3",
    "ModelSamplingFlux": "flux", "SkipLayerGuidanceSD3": "sd3", "SkipLayerGuidanceDiT": "flux", "ReferenceLatent": "flux",
    "TextEncodeQwenImageEdit": "seeing", "TextEncodeQwenImageEditPlus": "seeing",
    "InpaintModelConditioning": "inpaint", "InstructPixToPixConditioning": "edit", "EmptySD3LatentImage": "flux",
    "UNETLoader": "flux", "VAELoader": "flux", "DualCLIPLoader": "flux", "TripleCLIPLoader": "sd3", "CLIPLoader": "chroma",
    "INPAINT_VAEEncodeInpaintConditioning": "inpaint", "OptimalStepsScheduler": "flux", "Flux2Scheduler": "flux",
    "EmptyFlux2LatentImage": "klein",
}  # fmt: skip
"""The model of nodes that are not for Stable Diffusion 1."""

GIVEN = {
    "FreSca": {"freq_cutoff": 2}, "ReferenceLatent": {"latent": ["encoded", 0]},
    "CheckpointLoaderSimple": {"ckpt_name": "sd1.safetensors"}, "ModelSamplingSD3": {"shift": 5.0},
    "ModelSamplingFlux": {"width": 512},
    "UNETLoader": {"unet_name": "unet.safetensors"}, "CLIPLoader": {"clip_name": "t5.safetensors", "type": "chroma"},
    "DualCLIPLoader": {"clip_name1": "t5.safetensors", "clip_name2": "clip_l.safetensors", "type": "flux"},
    "TripleCLIPLoader": {f"clip_name{n}": f"{name}.safetensors" for n, name in enumerate(("clip_l", "t5", "clip_g"), 1)},
    "ModelSamplingDiscrete": {"sampling": "v_prediction"}, "CLIPSetLastLayer": {"stop_at_clip_layer": -2},
    "SkipLayerGuidanceSD3": {"layers": "1", "start_percent": 0.0, "end_percent": 1.0},
    "SkipLayerGuidanceDiT": {"double_layers": "1", "single_layers": "0", "start_percent": 0.0, "end_percent": 1.0},
    "EmptyImage": {"width": 32, "height": 16}, "SolidMask": {"width": 32, "height": 16},
    "CropMask": {"width": 32, "height": 16}, "ImageCrop": {"width": 32, "height": 16}, "FluxKontextImageScale": {},
    "ConditioningSetArea": {"width": 64, "height": 64, "x": 0, "y": 0}, "LatentUpscale": {"width": 96, "height": 64},
    "LatentUpscaleBy": {"scale_by": 1.5}, "ImageScale": {"width": 96, "height": 64, "upscale_method": "lanczos"},
    "ImageScaleToTotalPixels": {"megapixels": 0.01}, "LatentComposite": {"x": 8, "y": 8, "feather": 16},
    "SplitSigmas": {"step": 1}, "SetFirstSigma": {"sigma": 20.0}, "SDTurboScheduler": {"steps": 2}, "PrimitiveInt": {"value": 16},
    "PrimitiveStringMultiline": {"value": "a circle"}, "PrimitiveString": {"value": "a circle"},
    "ImagePadForOutpaint": {"left": 16, "feathering": 8}, "FeatherMask": {"left": 8, "bottom": 8}, "GrowMask": {"expand": 3},
    "ConditioningAverage": {"conditioning_from": ["other", 0], "conditioning_to_strength": 0.5},
    "SaveImage": {"filename_prefix": "kept/of %width%"}, "LoraLoader": {"strength_clip": 0.5}, "GITSScheduler": {"steps": 2},
    "ConditioningSetTimestepRange": {"start": 0.0, "end": 0.5}, "KSamplerAdvanced": {"start_at_step": 1, "scheduler": "normal"},
    "AlignYourStepsScheduler": {"steps": 2}, "CFGGuider": {"negative": ["other", 0]},
    "ETN_LoadImageBase64": {"image": f"data:image/png;base64,{SPOT_TEXT}"}, "ETN_LoadMaskBase64": {"mask": SPOT_TEXT},
    "ETN_LoadImageCache": {"id": "picture"}, "ETN_Translate": {"text": "lang:en a circle"},
    "ETN_MergeImageTile": {"tile": ["cut", 0], "index": 1}, "ETN_TileLayout": {"min_tile_size": 64, "padding": 16},
    "INPAINT_MaskBoundingBox": {"mask": ["spot", 0]}, "INPAINT_MaskedFill": {"mask": ["spot", 0], "fill": "navier-stokes"},
    "INPAINT_ExpandMask": {"mask": ["spot", 0]}, "HintImageEnchance": {"image_gen_width": 96, "image_gen_height": 64},
    **{name: {"resolution": 64} for name in (*nodes.hints.NETWORKS, "CannyEdgePreprocessor", "Scribble_XDoG_Preprocessor")},
}  # fmt: skip


def graph_with(name):
    """A graph in which a node is used: its inputs are linked by type, else usual; all that it gives is shown."""
    kind, graph = NODES[name], base(ONLY.get(name, "sd1"))
    inputs = {}
    for each in kind.inputs:
        if each.type not in WIDGETS:
            inputs[each.name] = ["other", 0] if each.name in ("negative", "empty_conditioning") else SOURCES[each.type]
        elif each.type == CHOICE:
            inputs[each.name] = each.default or None
        elif each.name == "steps":
            inputs[each.name] = 2
        else:
            inputs[each.name] = each.default
    graph["node"] = node(name, **{**inputs, **GIVEN.get(name, {})})
    if name == "ETN_MergeImageTile":
        graph["cut"] = node("ETN_ExtractImageTile", image=["picture", 0], layout=["tiles", 0], index=1)
    return graph


def filled(graph, library):
    """The first of a list for what is not said."""
    found = graph["node"]["inputs"]
    for each in NODES[graph["node"]["class_type"]].inputs:
        if found.get(each.name, 0) is None:
            found[each.name] = each.chosen_from(library)[0] if each.type == CHOICE else ""
    return graph


LACKING = [each.name for each in NODES.values() if each.function.__module__ == nodes.lacking.__name__]


@pytest.mark.parametrize("name", [name for name in NODES if name not in LACKING])
def test_a_node(bench, name):
    graph, kind = filled(graph_with(name), bench.library), NODES[name]
    if kind.output:
        watch = bench.run(graph)
        assert watch.shown["node"].images or ("sends", "node") in [told[:2] for told in watch.told]
        return
    for slot, type in enumerate(kind.gives):
        watch = bench.run({**graph, **SINKS[type](["node", slot])})
        found = bench.pictures(watch.shown["end"])[0]
        assert found.std() > 0 or type in ("MASK", "IMAGE", "INT", "FLOAT", "TileLayout"), (
            "the picture is of one colour"
        )
        value = bench.value(graph, "node", slot) if slot in range(len(kind.gives)) else None
        array = getattr(value, "samples", value)
        if isinstance(array, np.ndarray):
            assert array.dtype == np.float32
            assert np.isfinite(array).all()


@pytest.mark.parametrize("name", LACKING)
def test_a_node_that_is_lacking_is_refused_before(bench, name):
    """Its files are listed, and its reason is said, to whom it gives something as well."""
    kind = NODES[name]
    graph = base() | {"lacking": node(name), "end": node("PreviewImage", images=["picture", 0])}
    for each in kind.inputs:
        loads = next((other for other in LACKING if each.type in NODES[other].gives), None)
        if each.type == CHOICE:
            graph["lacking"]["inputs"][each.name] = "nobody_opens_it.safetensors"
        elif loads is not None:
            graph[each.name] = node(loads)
            graph["lacking"]["inputs"][each.name] = [each.name, NODES[loads].gives.index(each.type)]
        else:
            graph["lacking"]["inputs"][each.name] = SOURCES[each.type]
    checker = checking._Checker(graph, bench.library)
    (said,) = checker.problems("lacking")
    assert said["type"] == "custom_validation_failed"
    assert kind.about.removeprefix("Refused: ").rstrip(".") in said["details"]


def test_separate_files_of_z_image(bench):
    graph = base("z") | {
        "qwen": node("CLIPLoader", clip_name="qwen.safetensors", type="lumina2"),
        "read": node("CLIPTextEncode", text="a red circle", clip=["qwen", 0]),
        "empty": node("EmptySD3LatentImage", width=64, height=64, batch_size=1),
    }
    whole = bench.pictures(bench.run({**graph, **SINKS["MODEL"](["ckpt", 0])}).shown["end"])
    parts = {**graph, **sampled(positive=["read", 0], latent_image=["empty", 0]), **decoded(["sampled", 0])}
    assert (bench.pictures(bench.run(parts).shown["end"])[0] == whole[0]).all()


def test_separate_files_of_qwen_image(bench):
    """As in ComfyUI's template of it; the autoencoder is told from others of as many channels."""

    def shifted(model, clip, vae):
        return base("qwen") | {
            "shifted": node("ModelSamplingAuraFlow", model=model, shift=3.1),
            "text": node("CLIPTextEncode", text="a red circle", clip=clip),
            "other": node("CLIPTextEncode", text=" ", clip=clip),
            "empty": node("EmptySD3LatentImage", width=64, height=48, batch_size=1),
            **sampled(model=["shifted", 0], latent_image=["empty", 0], scheduler="simple", cfg=2.5),
            "decoded": node("VAEDecode", samples=["sampled", 0], vae=vae),
            **shown(["decoded", 0]),
        }

    parts = {
        "own": node("UNETLoader", unet_name="qwen_image.safetensors", weight_dtype="default"),
        "read": node("CLIPLoader", clip_name="qwen_2.5_vl_7b.safetensors", type="qwen_image"),
        "vae": node("VAELoader", vae_name="qwen_image_vae.safetensors"),
    }
    found, whole = (
        bench.pictures(bench.run({**shifted(*names), **parts}).shown["end"])[0]
        for names in ((["own", 0], ["read", 0], ["vae", 0]), (["ckpt", 0], ["ckpt", 1], ["ckpt", 2]))
    )
    assert found.std() > 0
    assert (found == whole).all()


def test_separate_files_of_flux2(bench):
    """As in ComfyUI's template of it."""

    def drawn(model, clip, vae):
        return base("klein") | {
            "text": node("CLIPTextEncode", text="a red circle", clip=clip),
            "other": node("ConditioningZeroOut", conditioning=["text", 0]),
            "latent": node("EmptyFlux2LatentImage", width=64, height=48, batch_size=1),
            "sigmas": node("Flux2Scheduler", steps=2, width=64, height=48),
            "guider": node("CFGGuider", model=model, positive=["text", 0], negative=["other", 0], cfg=1.0),
            **custom(),
            "decoded": node("VAEDecode", samples=["sampled", 0], vae=vae),
            "encoded": node("VAEEncode", pixels=["decoded", 0], vae=vae),
            "again": node("VAEDecode", samples=["encoded", 0], vae=vae),
            **shown(["again", 0]),
        }

    parts = {
        "own": node("UNETLoader", unet_name="klein.safetensors", weight_dtype="default"),
        "read": node("CLIPLoader", clip_name="klein_qwen.safetensors", type="flux2"),
        "vae": node("VAELoader", vae_name="klein_vae.safetensors"),
    }
    found, whole = (
        bench.pictures(bench.run({**drawn(*names), **parts}).shown["end"])[0]
        for names in ((["own", 0], ["read", 0], ["vae", 0]), (["ckpt", 0], ["ckpt", 1], ["ckpt", 2]))
    )
    assert found.shape[:2] == (48, 64)
    assert found.std() > 0
    assert (found == whole).all()


PATCHES = [each.name for each in NODES.values() if each.function.__module__ == nodes.patches.__name__]


@pytest.mark.parametrize("name", [name for name in PATCHES if name != "DifferentialDiffusion"])
def test_a_patch_changes_the_picture(bench, name):
    large = {"width": 128, "height": 128}  # in the middle of the U-Net there are then several places to look at
    start = changed(base(ONLY.get(name, "sd1")), "latent", **large)
    plain = bench.pictures(bench.run({**start, **SINKS["MODEL"](["ckpt", 0])}).shown["end"])
    graph = changed(filled(graph_with(name), bench.library), "latent", **large)
    made = bench.pictures(bench.run({**graph, **SINKS["MODEL"](["node", 0])}).shown["end"])
    assert (made[0] != plain[0]).any()


def test_all_nodes_of_the_first_cut_are_there():
    wanted = """CheckpointLoaderSimple UNETLoader CLIPLoader DualCLIPLoader TripleCLIPLoader VAELoader LoraLoader
        LoraLoaderModelOnly CLIPTextEncode CLIPTextEncodeSDXL CLIPTextEncodeFlux CLIPSetLastLayer FluxGuidance EmptyLatentImage
        EmptySD3LatentImage LoadImage LoadImageMask VAEEncode VAEDecode VAEEncodeTiled VAEDecodeTiled VAEEncodeForInpaint
        SetLatentNoiseMask InpaintModelConditioning DifferentialDiffusion LatentUpscale LatentUpscaleBy LatentBlend
        LatentComposite KSampler KSamplerAdvanced SamplerCustomAdvanced KSamplerSelect
        BasicScheduler RandomNoise CFGGuider BasicGuider
        ModelSamplingSD3 ModelSamplingFlux ModelSamplingDiscrete ModelSamplingAuraFlow ConditioningCombine ConditioningAverage
        ConditioningConcat ConditioningSetArea ConditioningSetMask ConditioningZeroOut ConditioningSetTimestepRange
        ControlNetLoader ControlNetApplyAdvanced UpscaleModelLoader ImageUpscaleWithModel ImageScale ImageScaleBy
        ImagePadForOutpaint RescaleCFG PerturbedAttentionGuidance SkipLayerGuidanceDiT ReferenceLatent SaveImage PreviewImage"""
    assert set(wanted.split()) <= NODES.keys()
    assert all(each.about.endswith(".") for each in NODES.values())
    assert changed(base(), "latent", width=8)["latent"]["inputs"]["width"] == 8
    assert IMAGES.is_dir()


def test_pictures_that_are_looked_at(bench):
    """By any of the nodes the same; not where a mask is black; and no FaceID without a network for faces."""

    def made(kind="IPAdapterAdvanced", **inputs):
        usual = {
            "model": ["ckpt", 0],
            "ipadapter": ["adapter", 0],
            "image": ["picture", 0],
            "weight": 0.8,
            "start_at": 0.0,
        }
        usual |= {"end_at": 1.0, "weight_type": "linear", "combine_embeds": "concat", "embeds_scaling": "V only"}
        graph = {
            **base(),
            "black": node("SolidMask", value=0.0, width=64, height=64),
            "looks": node(kind, **usual | inputs),
        }
        return bench.pictures(bench.run({**graph, **SINKS["MODEL"](["looks", 0])}).shown["end"])[0]

    plain = bench.pictures(bench.run({**base(), **SINKS["MODEL"](["ckpt", 0])}).shown["end"])[0]
    looked = made(clip_vision=["vision", 0])
    assert (looked != plain).any()
    assert (made("IPAdapter", weight_type="standard") == looked).all()
    assert (made("IPAdapterEmbeds", pos_embed=["seen", 0]) == looked).all()
    assert (made("IPAdapter", weight_type="style transfer") != looked).any()
    for nothing in ({"attn_mask": ["black", 0]}, {"weight": 0.0}, {"start_at": 1.0}):
        assert np.abs(made(**nothing).astype(int) - plain).max() <= 1, nothing


def test_texts_beside_pictures(bench):
    """Without a picture a text is read as ever; with one it is another, with its latent if there is an autoencoder."""

    def read(kind, file="seeing", **inputs):
        graph = {**base(file), "read": node(kind, clip=["ckpt", 1], **({"prompt": "a red circle"} | inputs))}
        bench.run({**graph, **SINKS["CONDITIONING"](["read", 0])})
        return bench.value(graph, "read")[0]

    plain = read("CLIPTextEncode", text="a red circle").read.words
    picture = ["picture", 0]
    first, second = "TextEncodeQwenImageEdit", "TextEncodeQwenImageEditPlus"
    assert (read(first, vae=["ckpt", 2]).read.words == plain).all()
    alone, numbered = read(first, image=picture), read(second, image1=picture, vae=["ckpt", 2])
    assert alone.references == ()
    assert [each.shape for each in numbered.references] == [(1, 16, 8, 8)]
    more = len(QwenTokenizer().encode("Picture 1: "))
    assert numbered.read.words.shape[1] == alone.read.words.shape[1] + more
    both = read(second, image1=picture, image3=picture, vae=["ckpt", 2])
    assert len(both.references) == 2
    assert both.read.words.shape[1] > numbered.read.words.shape[1]
    with pytest.raises(SettingError, match="clip: the text encoders of Stable Diffusion 1 see no pictures"):
        read(first, "sd1", image=picture)
