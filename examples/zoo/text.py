"""Text encoders and language models, by transformers."""

from typing import Any

import torch
from torch import Tensor

from zoo.build import architecture, built, noise, tokens, with_forward
from zoo.example import Axes, Built, Config, example

# The published configuration of the text encoder of runwayml/stable-diffusion-v1-5 (CLIP ViT-L/14).
SD15_CLIP: Config = {
    "vocab_size": 49408,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 77,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
    "attention_dropout": 0.0,
    "projection_dim": 768,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 1,
}
SMALL_CLIP: Config = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "projection_dim": 48,
}
SMALL: Config = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
TOKENS: Axes = {"input_ids": {0: "batch", 1: "tokens"}}
MASKED_TOKENS: Axes = {**TOKENS, "attention_mask": TOKENS["input_ids"]}
LAYERS = 3
CACHE = [f"{kind}_{layer}" for layer in range(LAYERS) for kind in ("key", "value")]
"""Names of a cache's tensors: `past_key_0` is an input and `key_0` the output that takes its place in the next step."""

CACHED_AXES: Axes = {
    **TOKENS,
    "attention_mask": {0: "batch", 1: "past + tokens"},
    **{f"past_{name}": {0: "batch", 2: "past"} for name in CACHE},
}
SMALL_GPT2: Config = {"vocab_size": 1000, "n_positions": 128, "n_embd": 64, "n_layer": LAYERS, "n_head": 4}
# A decoder with grouped queries: two query heads share a key and a value.
SMALL_DECODER: Config = {**SMALL, "num_key_value_heads": 2, "use_cache": False}


def clip(config: Config) -> Built:
    """CLIP's text encoder on 77 tokens."""
    module = architecture("transformers.CLIPTextModel", **config)
    inputs = {"input_ids": tokens(77, config["vocab_size"])}
    return built(module, inputs, "last_hidden_state", "pooler_output")


def language_model(name: str, **config: Any) -> Built:
    """A causal language model on 16 tokens, the last three padding, without a cache: the logits of every position.

    Without a mask, transformers looks for several sequences in one by `diff`, which TorchScript cannot export.
    """
    inputs = {"input_ids": tokens(16, 1000), "attention_mask": padding_mask(16, 3)}
    return built(architecture(f"transformers.{name}", **config), inputs, "logits")


def cached_model(name: str, heads: int, width: int, **config: Any) -> Built:
    """A causal language model that gets the keys and values of 5 tokens, and gives those of all, for 3 new tokens."""
    from transformers import DynamicCache

    module = architecture(f"transformers.{name}", **config)
    past = {f"past_{key}": noise(1, heads, 5, width, seed=index + 2) for index, key in enumerate(CACHE)}

    def forward(call: Any, input_ids: Tensor, attention_mask: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        cache = DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        result = call(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        pairs = [(layer.keys, layer.values) for layer in result.past_key_values.layers]
        return result.logits, *(tensor for pair in pairs for tensor in pair)

    inputs = {"input_ids": tokens(3, 1000), "attention_mask": torch.ones(1, 8, dtype=torch.int64), **past}
    return with_forward(module, forward), inputs


def padding_mask(count: int, padding: int) -> Tensor:
    """One row of ones, int64 of shape [1, count], zero at the last `padding` positions."""
    return (torch.arange(count) < count - padding).long()[None]


@example("last_hidden_state", "pooled", dynamic=TOKENS)
def sd15_clip_small() -> Built:
    """SD 1.5's text encoder, narrow."""
    return clip({**SD15_CLIP, **SMALL_CLIP})


@example("last_hidden_state", "pooled", size="full", dynamic=TOKENS)
def sd15_clip() -> Built:
    """SD 1.5's text encoder."""
    return clip(SD15_CLIP)


@example("text_embeds", "last_hidden_state", dynamic=TOKENS)
def clip_projection() -> Built:
    """CLIP's text encoder with its projection, as SDXL's second one: plain GELU, and a real end token to look for."""
    config = {**SD15_CLIP, **SMALL_CLIP, "hidden_act": "gelu", "eos_token_id": 999}
    module = architecture("transformers.CLIPTextModelWithProjection", **config)
    input_ids = tokens(77, 999)
    input_ids[0, 20:] = 999
    return built(module, {"input_ids": input_ids}, "text_embeds", "last_hidden_state")


@example("last_hidden_state", dynamic=TOKENS)
def t5_encoder() -> Built:
    """T5 v1.1's encoder, as SD3's and Flux's: relative positions, gated GELU, RMS norm."""
    module = architecture(
        "transformers.T5EncoderModel",
        vocab_size=1000,
        d_model=64,
        d_kv=16,
        d_ff=160,
        num_layers=3,
        num_heads=4,
        feed_forward_proj="gated-gelu",
    )
    return built(module, {"input_ids": tokens(32, 1000)}, "last_hidden_state")


@example("last_hidden_state", "pooled", dynamic={**MASKED_TOKENS, "token_type_ids": TOKENS["input_ids"]})
def bert() -> Built:
    """BERT with a padding mask and two segments."""
    inputs = {
        "input_ids": tokens(32, 1000),
        "attention_mask": padding_mask(32, 8),
        "token_type_ids": 1 - padding_mask(32, 20),
    }
    return built(architecture("transformers.BertModel", **SMALL), inputs, "last_hidden_state", "pooler_output")


@example("logits", dynamic=MASKED_TOKENS)
def gpt2() -> Built:
    """GPT-2: the head shares the embedding's weight."""
    return language_model("GPT2LMHeadModel", **SMALL_GPT2, use_cache=False)


@example("logits", dynamic=MASKED_TOKENS)
def llama() -> Built:
    """Llama: rotary positions, grouped queries, gated SiLU."""
    return language_model("LlamaForCausalLM", **SMALL_DECODER, rms_norm_eps=1e-5)


@example("logits", dynamic=MASKED_TOKENS)
def qwen2() -> Built:
    """Qwen 2: as Llama, with biases on query, key and value."""
    return language_model("Qwen2ForCausalLM", **SMALL_DECODER)


@example("logits", dynamic=MASKED_TOKENS)
def qwen3() -> Built:
    """Qwen 3: as Llama, with norms on query and key, and heads wider than the model."""
    return language_model("Qwen3ForCausalLM", **SMALL_DECODER, head_dim=32)


@example("logits", *CACHE, dynamic=CACHED_AXES)
def gpt2_cached() -> Built:
    """GPT-2 with the cache as inputs and outputs: first the prompt, then token by token."""
    return cached_model("GPT2LMHeadModel", 4, 16, **SMALL_GPT2)


@example("logits", *CACHE, dynamic=CACHED_AXES)
def llama_cached() -> Built:
    """Llama with the cache as inputs and outputs."""
    config = {**SMALL_DECODER, "use_cache": True}
    return cached_model("LlamaForCausalLM", 2, 16, **config, rms_norm_eps=1e-5)


@example("last_hidden_state", "pooled", size="full", dynamic=MASKED_TOKENS)
def bert_base() -> Built:
    """BERT-base on 128 tokens, 16 of them padding."""
    inputs = {"input_ids": tokens(128, 30522), "attention_mask": padding_mask(128, 16)}
    return built(architecture("transformers.BertModel"), inputs, "last_hidden_state", "pooler_output")


@example("logits", size="full", dynamic=MASKED_TOKENS)
def gpt2_base() -> Built:
    """GPT-2 of 124 million parameters on 128 tokens, without a cache."""
    inputs = {"input_ids": tokens(128, 50257), "attention_mask": padding_mask(128, 3)}
    return built(architecture("transformers.GPT2LMHeadModel", use_cache=False), inputs, "logits")
