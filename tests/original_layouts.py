"""The published architectures as their authors' code builds them: names and shapes of all tensors, for any sizes.

Written from the structure of the original networks, in the order in which they are built, without the tables that are tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Shapes = dict[str, tuple[int, ...]]


def linear(name: str, outputs: int, inputs: int, bias: bool = True) -> Shapes:
    return {f"{name}.weight": (outputs, inputs), **({f"{name}.bias": (outputs,)} if bias else {})}


def conv(name: str, outputs: int, inputs: int, kernel: int = 3) -> Shapes:
    return {f"{name}.weight": (outputs, inputs, kernel, kernel), f"{name}.bias": (outputs,)}


def norm(name: str, channels: int) -> Shapes:
    return {f"{name}.weight": (channels,), f"{name}.bias": (channels,)}


def prefixed(prefix: str, shapes: Shapes) -> Shapes:
    return {prefix + name: shape for name, shape in shapes.items()}


def resnet(name: str, inputs: int, outputs: int, time: int) -> Shapes:
    made = {
        **norm(f"{name}.in_layers.0", inputs),
        **conv(f"{name}.in_layers.2", outputs, inputs),
        **linear(f"{name}.emb_layers.1", outputs, time),
        **norm(f"{name}.out_layers.0", outputs),
        **conv(f"{name}.out_layers.3", outputs, outputs),
    }
    return made if inputs == outputs else {**made, **conv(f"{name}.skip_connection", outputs, inputs, 1)}


def spatial(name: str, channels: int, context: int, depth: int, matrices: bool) -> Shapes:
    project = linear if matrices else lambda *args: conv(*args, 1)
    made = {**norm(f"{name}.norm", channels), **project(f"{name}.proj_in", channels, channels)}
    for index in range(depth):
        block = f"{name}.transformer_blocks.{index}"
        for attention, width in (("attn1", channels), ("attn2", context)):
            made |= linear(f"{block}.{attention}.to_q", channels, channels, bias=False)
            made |= linear(f"{block}.{attention}.to_k", channels, width, bias=False)
            made |= linear(f"{block}.{attention}.to_v", channels, width, bias=False)
            made |= linear(f"{block}.{attention}.to_out.0", channels, channels)
        made |= linear(f"{block}.ff.net.0.proj", 8 * channels, channels) | linear(
            f"{block}.ff.net.2", channels, 4 * channels
        )
        for index_ in (1, 2, 3):
            made |= norm(f"{block}.norm{index_}", channels)
    return made | project(f"{name}.proj_out", channels, channels)


SD1: dict[str, Any] = {
    "width": 320, "levels": (1, 2, 4, 4), "depths": (1, 1, 1, 0), "middle": 1, "context": 768, "pooled": 0, "matrices": False,
}  # fmt: skip
SD2: dict[str, Any] = {**SD1, "context": 1024, "matrices": True}
SDXL: dict[str, Any] = {
    "width": 320, "levels": (1, 2, 4), "depths": (0, 2, 10), "middle": 10, "context": 2048, "pooled": 2816, "matrices": True,
}  # fmt: skip
REFINER: dict[str, Any] = {
    "width": 384, "levels": (1, 2, 4, 4), "depths": (0, 4, 4, 0), "middle": 4, "context": 1280, "pooled": 2560, "matrices": True,
}  # fmt: skip


def half_unet(
    width: int, levels: Sequence[int], depths: Sequence[int], middle: int, context: int, pooled: int, matrices: bool
) -> tuple[Shapes, list[int]]:
    """Down and middle, and the channels of what each input block gives."""
    time = 4 * width
    made = {**linear("time_embed.0", time, width), **linear("time_embed.2", time, time)}
    if pooled:
        made |= linear("label_emb.0.0", time, pooled) | linear("label_emb.0.2", time, time)
    made |= conv("input_blocks.0.0", width, 4)
    channels, given = width, [width]
    for level, (factor, depth) in enumerate(zip(levels, depths, strict=True)):
        for _ in range(2):
            name = f"input_blocks.{len(given)}"
            made |= resnet(f"{name}.0", channels, factor * width, time)
            channels = factor * width
            if depth:
                made |= spatial(f"{name}.1", channels, context, depth, matrices)
            given.append(channels)
        if level + 1 < len(levels):
            made |= conv(f"input_blocks.{len(given)}.0.op", channels, channels)
            given.append(channels)
    made |= resnet("middle_block.0", channels, channels, time)
    made |= spatial("middle_block.1", channels, context, middle, matrices)
    return made | resnet("middle_block.2", channels, channels, time), given


def unet(
    width: int, levels: Sequence[int], depths: Sequence[int], middle: int, context: int, pooled: int, matrices: bool
) -> Shapes:
    made, given = half_unet(width, levels, depths, middle, context, pooled, matrices)
    channels, number = given[-1], 0
    for level in reversed(range(len(levels))):
        for layer in range(3):
            name = f"output_blocks.{number}"
            made |= resnet(f"{name}.0", channels + given.pop(), levels[level] * width, 4 * width)
            channels, place = levels[level] * width, 1
            if depths[level]:
                made |= spatial(f"{name}.1", channels, context, depths[level], matrices)
                place = 2
            if level and layer == 2:
                made |= conv(f"{name}.{place}.conv", channels, channels)
            number += 1
    return {**made, **norm("out.0", width), **conv("out.2", 4, width)}


def controlnet(hint: Sequence[int] = (16, 16, 32, 32, 96, 96, 256), **settings: Any) -> Shapes:
    made, given = half_unet(**settings)
    for number, channels in enumerate(given):
        made |= conv(f"zero_convs.{number}.0", channels, channels, 1)
    inputs = 3
    for number, channels in enumerate((*hint, settings["width"])):
        made |= conv(f"input_hint_block.{2 * number}", channels, inputs)
        inputs = channels
    return made | conv("middle_block_out.0", given[-1], given[-1], 1)


def vae_resnet(name: str, inputs: int, outputs: int) -> Shapes:
    made = {
        **norm(f"{name}.norm1", inputs),
        **conv(f"{name}.conv1", outputs, inputs),
        **norm(f"{name}.norm2", outputs),
        **conv(f"{name}.conv2", outputs, outputs),
    }
    return made if inputs == outputs else {**made, **conv(f"{name}.nin_shortcut", outputs, inputs, 1)}


def vae(width: int = 128, levels: Sequence[int] = (1, 2, 4, 4), latents: int = 4, quantized: bool = True) -> Shapes:
    made: Shapes = {}
    for half, outputs in (("encoder", 2 * latents), ("decoder", 3)):
        deepest = levels[-1] * width
        made |= conv(f"{half}.conv_in", *((width, 3) if half == "encoder" else (deepest, latents)))
        channels = width
        if half == "encoder":
            for level, factor in enumerate(levels):
                for layer in range(2):
                    made |= vae_resnet(f"encoder.down.{level}.block.{layer}", channels, factor * width)
                    channels = factor * width
                if level + 1 < len(levels):
                    made |= conv(f"encoder.down.{level}.downsample.conv", channels, channels)
        made |= vae_resnet(f"{half}.mid.block_1", deepest, deepest) | norm(f"{half}.mid.attn_1.norm", deepest)
        for each in ("q", "k", "v", "proj_out"):
            made |= conv(f"{half}.mid.attn_1.{each}", deepest, deepest, 1)
        made |= vae_resnet(f"{half}.mid.block_2", deepest, deepest)
        channels = deepest
        if half == "decoder":
            for level in reversed(range(len(levels))):
                for layer in range(3):
                    made |= vae_resnet(f"decoder.up.{level}.block.{layer}", channels, levels[level] * width)
                    channels = levels[level] * width
                if level:
                    made |= conv(f"decoder.up.{level}.upsample.conv", channels, channels)
        made |= norm(f"{half}.norm_out", channels) | conv(f"{half}.conv_out", outputs, channels)
    if quantized:
        made |= conv("quant_conv", 2 * latents, 2 * latents, 1) | conv("post_quant_conv", latents, latents, 1)
    return made


def openclip(width: int = 1280, layers: int = 32, vocabulary: int = 49408, length: int = 77) -> Shapes:
    made: Shapes = {
        "positional_embedding": (length, width),
        "text_projection": (width, width),
        "logit_scale": (),
        "token_embedding.weight": (vocabulary, width),
    }
    for layer in range(layers):
        name = f"transformer.resblocks.{layer}"
        made |= norm(f"{name}.ln_1", width) | norm(f"{name}.ln_2", width)
        made |= {f"{name}.attn.in_proj_weight": (3 * width, width), f"{name}.attn.in_proj_bias": (3 * width,)}
        made |= linear(f"{name}.attn.out_proj", width, width)
        made |= linear(f"{name}.mlp.c_fc", 4 * width, width) | linear(f"{name}.mlp.c_proj", width, 4 * width)
    return made | norm("ln_final", width)


def clip(width: int = 768, layers: int = 12, vocabulary: int = 49408, length: int = 77, projection: int = 0) -> Shapes:
    """transformers' CLIPTextModel, as files name its parameters."""
    made: Shapes = {
        "text_model.embeddings.token_embedding.weight": (vocabulary, width),
        "text_model.embeddings.position_embedding.weight": (length, width),
    }
    for layer in range(layers):
        name = f"text_model.encoder.layers.{layer}"
        for each in ("q_proj", "k_proj", "v_proj", "out_proj"):
            made |= linear(f"{name}.self_attn.{each}", width, width)
        made |= norm(f"{name}.layer_norm1", width) | norm(f"{name}.layer_norm2", width)
        made |= linear(f"{name}.mlp.fc1", 4 * width, width) | linear(f"{name}.mlp.fc2", width, 4 * width)
    made |= norm("text_model.final_layer_norm", width)
    return made | (linear("text_projection", projection, width, bias=False) if projection else {})


def t5(width: int = 4096, layers: int = 24, heads: int = 64, hidden: int = 10240, vocabulary: int = 32128) -> Shapes:
    """transformers' T5EncoderModel, with gates."""
    made: Shapes = {"shared.weight": (vocabulary, width), "encoder.embed_tokens.weight": (vocabulary, width)}
    for layer in range(layers):
        name = f"encoder.block.{layer}.layer"
        for each in "qkvo":
            made |= linear(f"{name}.0.SelfAttention.{each}", width, width, bias=False)
        if not layer:
            made[f"{name}.0.SelfAttention.relative_attention_bias.weight"] = (32, heads)
        made |= {f"{name}.0.layer_norm.weight": (width,), f"{name}.1.layer_norm.weight": (width,)}
        for each in ("wi_0", "wi_1"):
            made |= linear(f"{name}.1.DenseReluDense.{each}", hidden, width, bias=False)
        made |= linear(f"{name}.1.DenseReluDense.wo", width, hidden, bias=False)
    return {**made, "encoder.final_layer_norm.weight": (width,)}


def double_block(name: str, width: int, head: int, modulated: bool) -> Shapes:
    made: Shapes = {}
    for side in ("img", "txt"):
        if modulated:
            made |= linear(f"{name}.{side}_mod.lin", 6 * width, width)
        made |= linear(f"{name}.{side}_attn.qkv", 3 * width, width)
        made |= {f"{name}.{side}_attn.norm.{each}_norm.scale": (head,) for each in ("query", "key")}
        made |= linear(f"{name}.{side}_attn.proj", width, width)
        made |= linear(f"{name}.{side}_mlp.0", 4 * width, width) | linear(f"{name}.{side}_mlp.2", width, 4 * width)
    return made


def single_block(name: str, width: int, head: int, modulated: bool) -> Shapes:
    made = linear(f"{name}.linear1", 7 * width, width) | linear(f"{name}.linear2", width, 5 * width)
    made |= {f"{name}.norm.{each}_norm.scale": (head,) for each in ("query", "key")}
    return made | (linear(f"{name}.modulation.lin", 3 * width, width) if modulated else {})


def blocks(width: int, head: int, double: int, single: int, modulated: bool) -> Shapes:
    made: Shapes = {}
    for index in range(double):
        made |= double_block(f"double_blocks.{index}", width, head, modulated)
    for index in range(single):
        made |= single_block(f"single_blocks.{index}", width, head, modulated)
    return made


def mlp(name: str, inputs: int, width: int) -> Shapes:
    return linear(f"{name}.in_layer", width, inputs) | linear(f"{name}.out_layer", width, width)


def flux(
    width: int = 3072, head: int = 128, double: int = 19, single: int = 38, channels: int = 64, text: int = 4096,
    pooled: int = 768, guidance: bool = True,
) -> Shapes:  # fmt: skip
    made = linear("img_in", width, channels) | mlp("time_in", 256, width) | mlp("vector_in", pooled, width)
    made |= mlp("guidance_in", 256, width) if guidance else {}
    made |= linear("txt_in", width, text) | blocks(width, head, double, single, modulated=True)
    made |= linear("final_layer.linear", channels, width)
    return made | linear("final_layer.adaLN_modulation.1", 2 * width, width)


def chroma(
    width: int = 3072, head: int = 128, double: int = 19, single: int = 38, channels: int = 64, text: int = 4096,
    hidden: int = 5120, layers: int = 5, approximated: int = 64,
) -> Shapes:  # fmt: skip
    made = linear("img_in", width, channels) | linear("txt_in", width, text)
    made |= linear("distilled_guidance_layer.in_proj", hidden, approximated)
    for index in range(layers):
        made |= mlp(f"distilled_guidance_layer.layers.{index}", hidden, hidden)
        made[f"distilled_guidance_layer.norms.{index}.scale"] = (hidden,)
    made |= linear("distilled_guidance_layer.out_proj", width, hidden)
    made |= blocks(width, head, double, single, modulated=False)
    return made | linear("final_layer.linear", channels, width)


def sd3(
    depth: int = 24, head: int = 64, channels: int = 16, text: int = 4096, pooled: int = 2048, places: int = 192,
    normed: bool = False, dual: int = 0, heads: int = 0,
) -> Shapes:  # fmt: skip
    """Heads as many as blocks, if not given; with `dual`, the first blocks attend to the image once more."""
    width = (heads or depth) * head
    made: Shapes = {"pos_embed": (1, places * places, width), **conv("x_embedder.proj", width, channels, 2)}
    made |= linear("t_embedder.mlp.0", width, 256) | linear("t_embedder.mlp.2", width, width)
    made |= linear("y_embedder.mlp.0", width, pooled) | linear("y_embedder.mlp.2", width, width)
    made |= linear("context_embedder", width, text)
    for index in range(depth):
        last = index + 1 == depth
        attentions = [("context_block", "attn"), ("x_block", "attn"), *([("x_block", "attn2")] if index < dual else [])]
        for side, attention in attentions:
            name = f"joint_blocks.{index}.{side}.{attention}"
            made |= linear(f"{name}.qkv", 3 * width, width)
            if normed:
                made |= {f"{name}.ln_q.weight": (head,), f"{name}.ln_k.weight": (head,)}
            if side == "x_block" or not last:
                made |= linear(f"{name}.proj", width, width)
        for side, parts in (("x_block", 9 if index < dual else 6), ("context_block", 2 if last else 6)):
            name = f"joint_blocks.{index}.{side}"
            made |= linear(f"{name}.adaLN_modulation.1", parts * width, width)
            if side == "x_block" or not last:
                made |= linear(f"{name}.mlp.fc1", 4 * width, width) | linear(f"{name}.mlp.fc2", width, 4 * width)
    made |= linear("final_layer.linear", 4 * channels, width)
    return made | linear("final_layer.adaLN_modulation.1", 2 * width, width)


def klein(
    width: int = 3072, head: int = 128, double: int = 5, single: int = 20, channels: int = 128, text: int = 7680
) -> Shapes:
    """Flux.2 without guidance: nothing has a bias."""
    made = {"img_in.weight": (width, channels), "txt_in.weight": (width, text)}
    made |= {"time_in.in_layer.weight": (width, 256), "time_in.out_layer.weight": (width, width)}
    for name, parts in (
        ("double_stream_modulation_img", 6),
        ("double_stream_modulation_txt", 6),
        ("single_stream_modulation", 3),
    ):
        made |= linear(f"{name}.lin", parts * width, width, False)
    for index in range(double):
        for side in ("img", "txt"):
            name = f"double_blocks.{index}.{side}"
            made |= linear(f"{name}_attn.qkv", 3 * width, width, False) | linear(
                f"{name}_attn.proj", width, width, False
            )
            made |= {f"{name}_attn.norm.{each}_norm.scale": (head,) for each in ("query", "key")}
            made |= linear(f"{name}_mlp.0", 6 * width, width, False) | linear(f"{name}_mlp.2", width, 3 * width, False)
    for index in range(single):
        name = f"single_blocks.{index}"
        made |= linear(f"{name}.linear1", 9 * width, width, False) | linear(f"{name}.linear2", width, 4 * width, False)
        made |= {f"{name}.norm.{each}_norm.scale": (head,) for each in ("query", "key")}
    made |= linear("final_layer.linear", channels, width, False)
    return made | linear("final_layer.adaLN_modulation.1", 2 * width, width, False)


def vae32(width: int = 128) -> Shapes:
    """Flux.2's autoencoder."""
    inner = {"quant_conv": "encoder.quant_conv", "post_quant_conv": "decoder.post_quant_conv"}
    made = {f"{inner.get(name.partition('.')[0], name.partition('.')[0])}.{name.partition('.')[2]}": shape
            for name, shape in vae(width, latents=32).items()}  # fmt: skip
    return {**made, "bn.running_mean": (128,), "bn.running_var": (128,), "bn.num_batches_tracked": ()}


def z_block(name: str, width: int, head: int, modulated: bool) -> Shapes:
    hidden = int(width / 3 * 8)
    made = {
        f"{name}.{each}.weight": (width,) for each in ("attention_norm1", "attention_norm2", "ffn_norm1", "ffn_norm2")
    }
    made |= linear(f"{name}.attention.qkv", 3 * width, width, False) | linear(
        f"{name}.attention.out", width, width, False
    )
    made |= {f"{name}.attention.{each}_norm.weight": (head,) for each in "qk"}
    made |= linear(f"{name}.feed_forward.w1", hidden, width, False) | linear(
        f"{name}.feed_forward.w3", hidden, width, False
    )
    made |= linear(f"{name}.feed_forward.w2", width, hidden, False)
    return made | (linear(f"{name}.adaLN_modulation.0", 4 * width, min(width, 256)) if modulated else {})


def z_image(width: int = 3840, head: int = 128, layers: int = 30, refiners: int = 2, text: int = 2560) -> Shapes:
    """As ComfyUI's files name it."""
    told = min(width, 256)
    made: Shapes = {"x_pad_token": (1, width), "cap_pad_token": (1, width), "norm_final.weight": (width,)}
    made |= {
        "cap_embedder.0.weight": (text,),
        **linear("cap_embedder.1", width, text),
        **linear("x_embedder", width, 64),
    }
    made |= linear("t_embedder.mlp.0", 1024, 256) | linear("t_embedder.mlp.2", told, 1024)
    made |= linear("final_layer.linear", 64, width) | linear("final_layer.adaLN_modulation.1", width, told)
    for kind, count in (("noise_refiner", refiners), ("context_refiner", refiners), ("layers", layers)):
        for index in range(count):
            made |= z_block(f"{kind}.{index}", width, head, kind != "context_refiner")
    return made


def qwen3(
    width: int = 2560, hidden: int = 9728, layers: int = 36, heads: int = 32, grouped: int = 8, head: int = 128,
    vocabulary: int = 151936,
) -> Shapes:  # fmt: skip
    """transformers' Qwen3ForCausalLM, whose table of tokens also chooses words."""
    made: Shapes = {"model.embed_tokens.weight": (vocabulary, width), "model.norm.weight": (width,)}
    for layer in range(layers):
        name = f"model.layers.{layer}"
        for each, count in (("q", heads), ("k", grouped), ("v", grouped)):
            made |= linear(f"{name}.self_attn.{each}_proj", count * head, width, False)
        made |= linear(f"{name}.self_attn.o_proj", width, heads * head, False)
        made |= {f"{name}.self_attn.{each}_norm.weight": (head,) for each in "qk"}
        made |= {f"{name}.{each}.weight": (width,) for each in ("input_layernorm", "post_attention_layernorm")}
        made |= linear(f"{name}.mlp.gate_proj", hidden, width, False) | linear(
            f"{name}.mlp.up_proj", hidden, width, False
        )
        made |= linear(f"{name}.mlp.down_proj", width, hidden, False)
    return made


def qwen2(
    width: int = 3584, hidden: int = 18944, layers: int = 28, heads: int = 28, grouped: int = 4, head: int = 128,
    vocabulary: int = 152064,
) -> Shapes:  # fmt: skip
    """The language model of Qwen2.5-VL: queries, keys and values have biases, and no norms."""
    plain = qwen3(width, hidden, layers, heads, grouped, head, vocabulary)
    made = {name: shape for name, shape in plain.items() if not name.endswith(("q_norm.weight", "k_norm.weight"))}
    for layer in range(layers):
        for each, count in (("q", heads), ("k", grouped), ("v", grouped)):
            made[f"model.layers.{layer}.self_attn.{each}_proj.bias"] = (count * head,)
    return {**made, "lm_head.weight": (vocabulary, width)}


def visual(width: int = 1280, words: int = 3584, layers: int = 32) -> Shapes:
    """What makes words of pictures in Qwen2.5-VL."""
    made = {"visual.patch_embed.proj.weight": (width, 3, 2, 14, 14), "visual.merger.ln_q.weight": (width,)}
    for layer in range(layers):
        name = f"visual.blocks.{layer}"
        made |= {f"{name}.norm1.weight": (width,), f"{name}.norm2.weight": (width,)}
        made |= linear(f"{name}.attn.qkv", 3 * width, width) | linear(f"{name}.attn.proj", width, width)
        made |= linear(f"{name}.mlp.gate_proj", 3420, width) | linear(f"{name}.mlp.up_proj", 3420, width)
        made |= linear(f"{name}.mlp.down_proj", width, 3420)
    return made | linear("visual.merger.mlp.0", 4 * width, 4 * width) | linear("visual.merger.mlp.2", words, 4 * width)


def qwen_image(width: int = 3072, head: int = 128, layers: int = 60, channels: int = 64, text: int = 3584) -> Shapes:
    """Qwen-Image, whose authors name it as diffusers does."""
    made = {"txt_norm.weight": (text,), **linear("img_in", width, channels), **linear("txt_in", width, text)}
    made |= linear("time_text_embed.timestep_embedder.linear_1", width, 256)
    made |= linear("time_text_embed.timestep_embedder.linear_2", width, width)
    for layer in range(layers):
        name = f"transformer_blocks.{layer}"
        for each in ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"):
            made |= linear(f"{name}.attn.{each}", width, width)
        made |= {f"{name}.attn.norm_{each}.weight": (head,) for each in ("q", "k", "added_q", "added_k")}
        for side in ("img", "txt"):
            made |= linear(f"{name}.{side}_mod.1", 6 * width, width)
            made |= linear(f"{name}.{side}_mlp.net.0.proj", 4 * width, width)
            made |= linear(f"{name}.{side}_mlp.net.2", width, 4 * width)
    return made | linear("norm_out.linear", 2 * width, width) | linear("proj_out", channels, width)


def wan_vae(width: int = 96, latents: int = 16) -> Shapes:
    """The autoencoder of Wan 2.1; a kernel that is written with three numbers has the frames first."""

    def conv(name: str, outputs: int, inputs: int, *kernel: int) -> Shapes:
        return {f"{name}.weight": (outputs, inputs, *kernel), f"{name}.bias": (outputs,)}

    def resnet(name: str, inputs: int, outputs: int) -> Shapes:
        found = {f"{name}.residual.0.gamma": (inputs, 1, 1, 1), f"{name}.residual.3.gamma": (outputs, 1, 1, 1)}
        found |= conv(f"{name}.residual.2", outputs, inputs, 3, 3, 3) | conv(
            f"{name}.residual.6", outputs, outputs, 3, 3, 3
        )
        return found | (conv(f"{name}.shortcut", outputs, inputs, 1, 1, 1) if inputs != outputs else {})

    def half(name: str, inputs: int, outputs: int, first: int, last: int) -> Shapes:
        found = conv(f"{name}.conv1", first, inputs, 3, 3, 3) | conv(f"{name}.head.2", outputs, last, 3, 3, 3)
        found |= {f"{name}.head.0.gamma": (last, 1, 1, 1), f"{name}.middle.1.norm.gamma": (4 * width, 1, 1)}
        found |= conv(f"{name}.middle.1.to_qkv", 12 * width, 4 * width, 1, 1)
        found |= conv(f"{name}.middle.1.proj", 4 * width, 4 * width, 1, 1)
        return (
            found | resnet(f"{name}.middle.0", 4 * width, 4 * width) | resnet(f"{name}.middle.2", 4 * width, 4 * width)
        )

    made = conv("conv1", 2 * latents, 2 * latents, 1, 1, 1) | conv("conv2", latents, latents, 1, 1, 1)
    made |= half("encoder", 3, 2 * latents, width, 4 * width) | half("decoder", latents, 3, 4 * width, width)
    sizes, layer = [width, width, 2 * width, 4 * width, 4 * width], 0
    for level in range(4):
        for inputs in (sizes[level], sizes[level + 1]):
            made |= resnet(f"encoder.downsamples.{layer}", inputs, sizes[level + 1])
            layer += 1
        if level < 3:
            made |= conv(f"encoder.downsamples.{layer}.resample.1", sizes[level + 1], sizes[level + 1], 3, 3)
            if level:
                made |= conv(f"encoder.downsamples.{layer}.time_conv", sizes[level + 1], sizes[level + 1], 3, 1, 1)
            layer += 1
    before = 4 * width
    for level, size in enumerate((4 * width, 4 * width, 2 * width, width)):
        for number in range(3):
            made |= resnet(f"decoder.upsamples.{4 * level + number}", size if number else before, size)
        if level < 3:
            made |= conv(f"decoder.upsamples.{4 * level + 3}.resample.1", size // 2, size, 3, 3)
            if level < 2:
                made |= conv(f"decoder.upsamples.{4 * level + 3}.time_conv", 2 * size, size, 3, 1, 1)
        before = size // 2
    return made


def filled(shapes: Shapes, seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 elements."""
    generator = np.random.default_rng(seed)
    return {name: np.array(generator.standard_normal(shape, np.float32)) for name, shape in shapes.items()}
