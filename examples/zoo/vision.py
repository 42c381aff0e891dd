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


def activated(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Module:
    """A convolution, batch normalization and SiLU."""
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.SiLU())


class CrossStage(nn.Module):
    """YOLOv8's C2f: a half of the channels passes bottlenecks, and what each of them gives is kept."""

    def __init__(self, inputs: int, outputs: int, depth: int, shortcut: bool) -> None:
        super().__init__()
        half = outputs // 2
        self.shortcut = shortcut
        self.cv1 = activated(inputs, outputs, 1)
        self.m = nn.ModuleList(nn.Sequential(activated(half, half), activated(half, half)) for _ in range(depth))
        self.cv2 = activated((2 + depth) * half, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[N, inputs, H, W] to [N, outputs, H, W]."""
        kept = list(self.cv1(x).chunk(2, 1))
        for block in self.m:
            kept.append(block(kept[-1]) + kept[-1] if self.shortcut else block(kept[-1]))
        result: Tensor = self.cv2(torch.cat(kept, 1))
        return result


class PoolPyramid(nn.Module):
    """YOLO's SPPF: largest elements of windows, of windows, of windows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cv1, self.cv2 = activated(width, width // 2, 1), activated(2 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[N, width, H, W] to the same shape."""
        kept = [self.cv1(x)]
        for _ in range(3):
            kept.append(nn.functional.max_pool2d(kept[-1], 5, 1, 2))
        result: Tensor = self.cv2(torch.cat(kept, 1))
        return result


class Yolo(nn.Module):
    """YOLOv8 (Ultralytics 2023): what it finds at three scales, boxes by distributions, before they are sorted out."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        a, b, c, d, e = (width * 2**i for i in range(5))
        self.stem = nn.Sequential(activated(3, a, 3, 2), activated(a, b, 3, 2), CrossStage(b, b, 1, True))
        self.third = nn.Sequential(activated(b, c, 3, 2), CrossStage(c, c, 2, True))
        self.fourth = nn.Sequential(activated(c, d, 3, 2), CrossStage(d, d, 2, True))
        self.fifth = nn.Sequential(activated(d, e, 3, 2), CrossStage(e, e, 1, True), PoolPyramid(e))
        self.up4, self.up3 = CrossStage(d + e, d, 1, False), CrossStage(c + d, c, 1, False)
        self.down4, self.down5 = activated(c, c, 3, 2), activated(d, d, 3, 2)
        self.out4, self.out5 = CrossStage(c + d, d, 1, False), CrossStage(d + e, e, 1, False)
        near, far = max(width, c // 4, 64), max(c, min(classes, 100))
        self.boxes = nn.ModuleList(self.head(each, near, 64) for each in (c, d, e))
        self.labels = nn.ModuleList(self.head(each, far, classes) for each in (c, d, e))

    @staticmethod
    def head(inputs: int, width: int, outputs: int) -> nn.Module:
        """What is predicted at a scale."""
        return nn.Sequential(activated(inputs, width), activated(width, width), nn.Conv2d(width, outputs, 1))

    def forward(self, image: Tensor) -> Tensor:
        """[N, 3, H, W] to [N, 4 + classes, places]: distances to the left, top, right and bottom, in cells, and scores."""
        third = self.third(self.stem(image))
        fourth = self.fourth(third)
        fifth = self.fifth(fourth)
        double = nn.Upsample(scale_factor=2, mode="nearest")
        middle = self.up4(torch.cat([double(fifth), fourth], 1))
        fine = self.up3(torch.cat([double(middle), third], 1))
        middle = self.out4(torch.cat([self.down4(fine), middle], 1))
        coarse = self.out5(torch.cat([self.down5(middle), fifth], 1))
        levels = (fine, middle, coarse)
        boxes = torch.cat([head(x).flatten(2) for head, x in zip(self.boxes, levels, strict=True)], 2)
        labels = torch.cat([head(x).flatten(2) for head, x in zip(self.labels, levels, strict=True)], 2)
        shares = boxes.unflatten(1, (4, 16)).softmax(2)
        distances = (shares * torch.arange(16.0).reshape(1, 1, 16, 1)).sum(2)
        return torch.cat([distances, labels.sigmoid()], 1)


@example("found", dynamic={"image": PIXELS["pixel_values"]})
def yolo() -> Built:
    """YOLOv8's structure, narrow, on an image of 64 x 64."""
    return randomize(Yolo(width=8, classes=10)), {"image": noise(1, 3, 64, 64)}


@example("logits", size="full", dynamic=BATCH)
def vit_base() -> Built:
    """ViT-B/16 on an image of 224 x 224."""
    return on_image("ViTForImageClassification", 224, ("logits",), num_labels=1000)


@example("logits", size="full", dynamic=PIXELS)
def resnet50() -> Built:
    """ResNet-50 on an image of 224 x 224."""
    return on_image("ResNetForImageClassification", 224, ("logits",), num_labels=1000)


@example("logits", size="full", dynamic=BATCH)
def mobilenet_v2_full() -> Built:
    """MobileNetV2 on an image of 224 x 224."""
    return on_image("MobileNetV2ForImageClassification", 224, ("logits",), num_labels=1001)


@example("logits", size="full")
def efficientnet_b0() -> Built:
    """EfficientNet-B0 on an image of 224 x 224."""
    config = {"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280, "image_size": 224}
    return on_image("EfficientNetForImageClassification", 224, ("logits",), num_labels=1000, **config)


@example("logits", size="full", dynamic=PIXELS)
def convnext_tiny() -> Built:
    """ConvNeXt-T on an image of 224 x 224."""
    return on_image("ConvNextForImageClassification", 224, ("logits",), num_labels=1000)


@example("found", size="full", dynamic={"image": PIXELS["pixel_values"]})
def yolov8n() -> Built:
    """YOLOv8n's structure on an image of 640 x 640."""
    return randomize(Yolo(width=16, classes=80)), {"image": noise(1, 3, 640, 640)}


@example("upscaled", size="full", dynamic={"image": PIXELS["pixel_values"]})
def real_esrgan() -> Built:
    """Real-ESRGAN's upscaler, six of its 23 blocks, on an image of 64 x 64."""
    return randomize(RRDBNet(width=64, growth=32, blocks=6)), {"image": noise(1, 3, 64, 64)}
