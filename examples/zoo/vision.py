"""Image classifiers, encoders and upscalers, mostly by transformers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from zoo.build import architecture, built, noise, randomize
from zoo.example import Axes, Built, example

PIXELS: Axes = {"pixel_values": {0: "batch", 2: "height", 3: "width"}}
BATCH: Axes = {"pixel_values": {0: "batch"}}


def on_image(path: str, size: int, fields: tuple[str, ...], **config: Any) -> Built:
    """A model of transformers on one image of size x size."""
    return built(architecture(f"transformers.{path}", **config), {"pixel_values": noise(1, 3, size, size)}, *fields)


def transformer(layers: int = 3) -> dict[str, int]:
    """A narrow vision transformer."""
    return {"hidden_size": 64, "num_hidden_layers": layers, "num_attention_heads": 4}


def classifier(path: str, **config: Any) -> Built:
    """A classifier of transformers, of the image or of each pixel, for ten labels, on one image of 64 x 64."""
    return on_image(path, 64, ("logits",), num_labels=10, **config)


@example("logits", dynamic=BATCH)
def vit() -> Built:
    """ViT: a class token, learned positions."""
    config = {"image_size": 64, "patch_size": 16, "intermediate_size": 256}
    return classifier("ViTForImageClassification", **config, **transformer())


@example("image_embeds", "last_hidden_state")
def clip_vision() -> Built:
    """CLIP's image encoder with its projection."""
    fields = ("image_embeds", "last_hidden_state")
    config = {"image_size": 64, "patch_size": 16, "intermediate_size": 256, "projection_dim": 48}
    return on_image("CLIPVisionModelWithProjection", 64, fields, **config, **transformer())


@example("last_hidden_state", "pooled")
def dinov2() -> Built:
    """DINOv2: layer scale; positions interpolated from 8 x 8 to 5 x 5 patches."""
    fields = ("last_hidden_state", "pooler_output")
    return on_image("Dinov2Model", 70, fields, image_size=112, patch_size=14, **transformer())


@example("logits")
def swin() -> Built:
    """Swin: attention in windows, shifted in every second layer, with relative positions."""
    config = {"image_size": 64, "embed_dim": 16, "depths": (2, 2, 2), "num_heads": (1, 2, 4), "window_size": 4}
    return classifier("SwinForImageClassification", **config)


@example("logits", dynamic=PIXELS)
def segformer() -> Built:
    """SegFormer: attention over reduced keys, no positions, levels resized and merged by an MLP."""
    config = {"hidden_sizes": (16, 32, 40, 64), "num_attention_heads": (1, 2, 5, 8), "decoder_hidden_size": 64}
    return classifier("SegformerForSemanticSegmentation", depths=(1, 1, 1, 1), **config)


@example("last_hidden_state")
def sam_vision() -> Built:
    """SAM's image encoder: windowed and global attention with decomposed relative positions."""
    config = {"image_size": 96, "patch_size": 16, "window_size": 4, "global_attn_indexes": (1,), "output_channels": 32}
    return on_image("SamVisionModel", 96, ("last_hidden_state",), mlp_dim=256, **config, **transformer(2))


@example("logits", dynamic=PIXELS)
def convnext() -> Built:
    """ConvNeXt: depthwise 7 x 7 kernels, layer norm over channels."""
    config = {"hidden_sizes": (16, 32, 64, 96), "depths": (1, 1, 2, 1)}
    return classifier("ConvNextForImageClassification", **config)


@example("logits", dynamic=PIXELS)
def resnet() -> Built:
    """ResNet with bottlenecks."""
    config = {"embedding_size": 16, "hidden_sizes": (32, 64, 96, 128), "depths": (1, 2, 2, 1)}
    return classifier("ResNetForImageClassification", **config)


@example("logits", dynamic=BATCH)
def mobilenet_v2() -> Built:
    """MobileNetV2: inverted bottlenecks, ReLU6, TensorFlow's one-sided padding, which Python computes from the size."""
    return classifier("MobileNetV2ForImageClassification", depth_multiplier=0.35)


@example("logits")
def efficientnet() -> Built:
    """EfficientNet-B0, narrow: squeeze and excitation, one-sided padding at stride 2."""
    config = {"width_coefficient": 0.5, "depth_coefficient": 1.0, "hidden_dim": 640, "image_size": 64}
    return classifier("EfficientNetForImageClassification", gain=1.5, **config)


class DenseBlock(nn.Module):
    """Five convolutions; each sees the block's input and all earlier results."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        for index in range(5):
            outputs = growth if index < 4 else width
            self.add_module(f"conv{index + 1}", nn.Conv2d(width + index * growth, outputs, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        """[N, width, H, W] to the same shape."""
        features = x
        *growing, last = self.children()
        for conv in growing:
            features = torch.cat([features, nn.functional.leaky_relu(conv(features), 0.2)], dim=1)
        change: Tensor = last(features)
        return x + 0.2 * change


class ResidualDenseBlock(nn.Module):
    """Three dense blocks (RRDB), residual in residual."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.rdb1, self.rdb2, self.rdb3 = (DenseBlock(width, growth) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """[N, width, H, W] to the same shape."""
        change: Tensor = self.rdb3(self.rdb2(self.rdb1(x)))
        return x + 0.2 * change


class RRDBNet(nn.Module):
    """ESRGAN's generator (Wang et al. 2018), with Real-ESRGAN's names: four times the resolution."""

    def __init__(self, width: int, growth: int, blocks: int) -> None:
        super().__init__()

        def conv(inputs: int, outputs: int) -> nn.Conv2d:
            return nn.Conv2d(inputs, outputs, 3, padding=1)

        self.conv_first = conv(3, width)
        self.body = nn.Sequential(*(ResidualDenseBlock(width, growth) for _ in range(blocks)))
        self.conv_body = conv(width, width)
        self.conv_up1 = conv(width, width)
        self.conv_up2 = conv(width, width)
        self.conv_hr = conv(width, width)
        self.conv_last = conv(width, 3)

    def forward(self, image: Tensor) -> Tensor:
        """[N, 3, H, W] to [N, 3, 4H, 4W]."""
        activate: Callable[[Tensor], Tensor] = nn.LeakyReLU(0.2)
        x = self.conv_first(image)
        x = x + self.conv_body(self.body(x))
        for up in (self.conv_up1, self.conv_up2):
            x = activate(up(nn.functional.interpolate(x, scale_factor=2, mode="nearest")))
        result: Tensor = self.conv_last(activate(self.conv_hr(x)))
        return result


@example("upscaled", dynamic={"image": PIXELS["pixel_values"]})
def rrdbnet() -> Built:
    """ESRGAN's upscaler: residual dense blocks, nearest-neighbour resizing."""
    return randomize(RRDBNet(width=16, growth=8, blocks=2)), {"image": noise(1, 3, 16, 16)}


@example("logits", size="full", dynamic=BATCH)
def vit_base() -> Built:
    """ViT-B/16 on an image of 224 x 224."""
    return on_image("ViTForImageClassification", 224, ("logits",), num_labels=1000)


@example("logits", size="full", dynamic=PIXELS)
def resnet50() -> Built:
    """ResNet-50 on an image of 224 x 224."""
    return on_image("ResNetForImageClassification", 224, ("logits",), num_labels=1000)
