"""Speech encoders and a vocoder, by transformers."""

from typing import Any

from torch import Tensor
from torch.nn.functional import gelu

from zoo.build import architecture, built, noise, with_forward
from zoo.example import Built, example


def whisper() -> Any:
    """Whisper's encoder, for 2 s of sound in place of 30."""
    return architecture(
        "transformers.models.whisper.modeling_whisper.WhisperEncoder",
        num_mel_bins=80,
        d_model=64,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=256,
        max_source_positions=100,
    )


@example("last_hidden_state", dynamic={"input_features": {0: "batch"}})
def whisper_encoder() -> Built:
    """Whisper's encoder, on 2 s of sound in place of 30; as published, it takes no other length."""
    return built(whisper(), {"input_features": noise(1, 80, 200)}, "last_hidden_state")


@example("last_hidden_state", dynamic={"input_features": {0: "batch", 2: "frames"}})
def whisper_encoder_short() -> Built:
    """Whisper's encoder for any length up to its own: the positions are cut to the sound."""
    module = whisper()

    def forward(_: Any, features: Tensor) -> Tensor:
        x = gelu(module.conv2(gelu(module.conv1(features)))).permute(0, 2, 1)
        x = x + module.embed_positions.weight[: x.shape[1]]
        for layer in module.layers:
            x = layer(x, None)
        result: Tensor = module.layer_norm(x)
        return result

    return with_forward(module, forward), {"input_features": noise(1, 80, 120)}


@example("last_hidden_state", dynamic={"input_values": {0: "batch", 1: "samples"}})
def wav2vec2() -> Built:
    """Wav2Vec 2.0, on 0.25 s: strided convolutions on samples, positions by a grouped convolution with weight norm."""
    module = architecture(
        "transformers.Wav2Vec2Model",
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        conv_dim=(32,) * 7,
        num_conv_pos_embeddings=32,
        num_conv_pos_embedding_groups=4,
    )
    return built(module, {"input_values": noise(1, 4000)}, "last_hidden_state")


@example("waveform")
def hifi_gan() -> Built:
    """HiFi-GAN (SpeechT5's): transposed convolutions to samples, dilated residual blocks."""
    module = architecture("transformers.SpeechT5HifiGan", upsample_initial_channel=64)
    return with_forward(module, lambda call, spectrogram: call(spectrogram)), {"spectrogram": noise(1, 16, 80)}
