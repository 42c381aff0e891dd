"""Small networks that need nothing but torch."""

from itertools import pairwise

from torch import Tensor, cat, nn, sigmoid

from zoo.build import noise, randomize
from zoo.example import Axes, Built, example

IMAGE_AXES: Axes = {"image": {0: "batch", 2: "height", 3: "width"}}


@example("logits", dynamic=IMAGE_AXES)
def tiny_cnn() -> Built:
    """One convolution, one pooling, one linear layer."""
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    return randomize(module), {"image": noise(1, 3, 16, 16)}


class UNet(nn.Module):
    """Ronneberger et al. 2015, padded, with batch norm: skips are concatenated, transposed convolutions upsample."""

    def __init__(self, inputs: int, outputs: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.stem = double_conv(inputs, widths[0])
        self.pool = nn.MaxPool2d(2)
        self.down = nn.ModuleList(double_conv(narrow, wide) for narrow, wide in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(wide, narrow, 2, stride=2) for narrow, wide in pairs)
        self.merge = nn.ModuleList(double_conv(2 * narrow, narrow) for narrow, _ in pairs)
        self.head = nn.Conv2d(widths[0], outputs, 1)

    def forward(self, image: Tensor) -> Tensor:
        """[N, inputs, H, W] to [N, outputs, H, W], in [0, 1]."""
        levels = [self.stem(image)]
        for down in self.down:
            levels.append(down(self.pool(levels[-1])))
        x = levels.pop()
        for up, merge in zip(reversed(self.up), reversed(self.merge), strict=True):
            x = merge(cat([levels.pop(), up(x)], dim=1))
        return sigmoid(self.head(x))


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3x3 convolutions, each with batch norm and ReLU."""
    layers: list[nn.Module] = []
    for width in (inputs, outputs):
        layers += [nn.Conv2d(width, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


@example("mask", dynamic=IMAGE_AXES)
def unet_transposed() -> Built:
    """A segmentation U-Net with transposed convolutions."""
    return randomize(UNet(3, 2, (8, 16, 32))), {"image": noise(1, 3, 32, 32)}
