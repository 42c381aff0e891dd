"""Which network a file of an upscaler is, by the names and sizes of its tensors, and that network as a graph of graphc's.

ESRGAN (Wang et al., 2018), by the names of its own code and by those of BasicSR's RRDBNet; Real-ESRGAN's compact network
(SRVGGNetCompact; Wang et al., 2021). Any number of blocks, features and channels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any

from graphc_images.errors import ModelError

Shapes = Mapping[str, tuple[int, ...]]

SLOPE = 0.2
"""Of leaky rectifiers in ESRGAN, and how much a block adds to what comes in."""

CONVOLUTION = "strides=(1, 1), dilations=(1, 1), pads_before=(1, 1), pads_after=(1, 1)"


@dataclass(frozen=True)
class Network:
    """A network in graphc's text form: an input `x` [batch, channels, height, width] and an output `y`.

    It takes `colours` (3, or 1 for each by itself). Squares of `unshuffled` pixels are one of its elements, with more channels,
    and of `shuffled` pixels one of its result's. With `residual` the picture, each pixel as large as it becomes, is added.
    `scale` is all in all.
    """

    kind: str
    text: str
    colours: int
    scale: int
    unshuffled: int = 1
    shuffled: int = 1
    residual: bool = False


def network_of(tensors: Mapping[str, Any]) -> Network:
    """What a file has. Raises ModelError if that is not an upscaler that is known."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if hasattr(tensor, "shape")}
    for first, make in KINDS.items():
        if len(shapes.get(first, ())) == 4:
            text = Writer(shapes)
            try:
                made = make(text)
            except KeyError as error:
                raise ModelError(f"it is like an upscaler with {first}, but {error.args[0]} is missing") from None
            if unread := sorted(shapes.keys() - text.read):
                raise ModelError(f"it is like {made.kind}, but has more: {', '.join(unread[:3])}")
            return made
    some = ", ".join(list(shapes)[:3]) or "nothing"
    raise ModelError(f"it is not an upscaler that is known (ESRGAN, RRDBNet, SRVGGNetCompact); it has {some}, …")


class Writer:
    """The text of a graph, line by line. Parameters have the names of the file, and are noted as read."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes, self.lines = shapes, list[str]()
        self.read: set[str] = set()
        self.channels: dict[str, int] = {}

    def graph(self, result: str, channels: int) -> str:
        """All of it."""
        head = f"graph upscaler(%x: float32[batch, {channels}, height, width])"
        return "\n".join([head, *self.lines, f"return y=%{result}"])

    def value(self, operator: str, *inputs: str) -> str:
        """One more value; its name is returned."""
        self.lines.append(f"%v{len(self.lines)} = {operator}({', '.join(f'%{each}' for each in inputs)})")
        return f"v{len(self.lines) - 1}"

    def parameter(self, name: str, shape: tuple[int, ...]) -> str:
        """A tensor of the file. Raises KeyError with the name and the size that it lacks."""
        if self.shapes.get(name) != shape:
            raise KeyError(
                f"{name} of {list(shape)}" if name not in self.shapes else f"{name} not of {list(self.shapes[name])}"
            )
        self.read.add(name)
        self.lines.append(f"%v{len(self.lines)}: float32[{', '.join(map(str, shape))}] = parameter({name})")
        return f"v{len(self.lines) - 1}"

    def number(self, number: float) -> str:
        """A constant."""
        self.lines.append(f"%v{len(self.lines)}: float32[] = constant({number})")
        return f"v{len(self.lines) - 1}"

    def convolution(self, name: str, x: str, inputs: int | None = None) -> str:
        """3 x 3, with a bias."""
        weight = self.shapes.get(f"{name}.weight", ())
        if len(weight) != 4 or weight[2:] != (3, 3) or (inputs is not None and weight[1] != inputs):
            raise KeyError(f"{name}.weight of [n, {inputs or 'n'}, 3, 3]")
        operands = self.parameter(f"{name}.weight", weight), self.parameter(f"{name}.bias", weight[:1])
        made = self.value(f"Conv[{CONVOLUTION}]", x, *operands)
        self.channels[made] = weight[0]
        return made

    def leaky(self, x: str) -> str:
        """Numbers below 0 become small."""
        return self.value(f"LeakyRelu[alpha={SLOPE}]", x)

    def added(self, x: str, more: str) -> str:
        """A part of what a block makes, and what came in."""
        return self.value("Add", self.value("Mul", more, self.number(SLOPE)), x)

    def doubled(self, x: str, times: int, channels: int) -> str:
        """Each element as four, where the input is so many times as large already."""
        sizes = f"sizes=(batch, {channels}, {2 * times} * height, {2 * times} * width), scales=(1.0, 1.0, 2.0, 2.0)"
        return self.value(f'Resize[{sizes}, mode="nearest", coordinate="asymmetric", nearest="floor"]', x)


@dataclass(frozen=True)
class Names:
    """How the layers of an ESRGAN are called: `block` of a number, `dense` of a block's third, then its convolution; those after
    the blocks, which enlarge, and the last two."""

    first: str
    dense: str
    after: str
    enlarging: tuple[str, ...]
    last: tuple[str, str]
    blocks: int


def _old(text: Writer) -> Network:
    """ESRGAN's own names: `model.1.sub.0.RDB1.conv1.0.weight`."""
    layers = sorted({int(found[1]) for name in text.shapes if (found := re.fullmatch(r"model\.(\d+)\.weight", name))})
    blocks = sorted({int(found[1]) for name in text.shapes if (found := re.match(r"model\.1\.sub\.(\d+)\.", name))})
    if len(layers) < 3 or len(blocks) < 2:
        raise KeyError("model.1.sub.0.RDB1.conv1.0.weight")
    first, *enlarging, before, last = (f"model.{layer}" for layer in layers)
    names = Names(
        first,
        "model.1.sub.{}.RDB{}.conv{}.0",
        f"model.1.sub.{blocks[-1]}",
        tuple(enlarging),
        (before, last),
        len(blocks) - 1,
    )
    return _esrgan("ESRGAN", text, names, 3)


def _new(text: Writer) -> Network:
    """BasicSR's names: `body.0.rdb1.conv1.weight`. Where a picture comes in as squares of pixels, it is enlarged by less."""
    blocks = {int(found[1]) for name in text.shapes if (found := re.match(r"body\.(\d+)\.", name))}
    names = Names(
        "conv_first",
        "body.{}.rdb{}.conv{}",
        "conv_body",
        ("conv_up1", "conv_up2"),
        ("conv_hr", "conv_last"),
        len(blocks),
    )
    return _esrgan("RRDBNet", text, names, text.shapes["conv_last.weight"][0])


def _esrgan(kind: str, text: Writer, names: Names, colours: int) -> Network:
    """Dense blocks, each in three parts of five convolutions that see all that was made before them."""
    channels = text.shapes[f"{names.first}.weight"][1]
    unshuffled = isqrt(channels // colours)
    if channels != colours * unshuffled**2 or colours not in (1, 3):
        raise ModelError(f"its first layer takes {channels} channels and its last gives {colours}")
    first = x = text.convolution(names.first, "x")
    features = text.channels[first]
    for block in range(names.blocks):
        came = x
        for third in (1, 2, 3):
            seen = [x]
            width = features
            for number in (1, 2, 3, 4, 5):
                joined = text.value("Concat[axis=1]", *seen) if len(seen) > 1 else seen[0]
                made = text.convolution(names.dense.format(block, third, number), joined, width)
                width += text.channels[made]
                seen.append(text.leaky(made) if number < 5 else made)
            x = text.added(x, seen[-1])
        x = text.added(came, x)
    x = text.value("Add", text.convolution(names.after, x, features), first)
    for number, name in enumerate(names.enlarging):
        x = text.leaky(text.convolution(name, text.doubled(x, 2**number, features), features))
    before, last = names.last
    x = text.leaky(text.convolution(before, x, features))
    result = text.convolution(last, x)
    scale, rest = divmod(2 ** len(names.enlarging), unshuffled)
    if rest:
        raise ModelError(f"it takes squares of {unshuffled} pixels, and enlarges by {2 ** len(names.enlarging)}")
    return Network(kind, text.graph(result, channels), colours, scale, unshuffled)


def _compact(text: Writer) -> Network:
    """A row of convolutions with slopes for numbers below 0 between them."""
    last = max(int(found[1]) for name in text.shapes if (found := re.fullmatch(r"body\.(\d+)\.weight", name)))
    x = "x"
    for layer in range(0, last, 2):
        x = text.convolution(f"body.{layer}", x, text.channels.get(x))
        width = text.channels[x]
        slopes = text.value(f"Reshape[shape=({width}, 1, 1)]", text.parameter(f"body.{layer + 1}.weight", (width,)))
        x = text.value("PRelu", x, slopes)
        text.channels[x] = width
    result = text.convolution(f"body.{last}", x, text.channels[x])
    colours = text.shapes["body.0.weight"][1]
    scale = isqrt(text.channels[result] // colours)
    if text.channels[result] != colours * scale**2 or colours not in (1, 3):
        raise ModelError(f"its first layer takes {colours} channels and its last gives {text.channels[result]}")
    return Network("SRVGGNetCompact", text.graph(result, colours), colours, scale, shuffled=scale, residual=True)


KINDS = {"model.0.weight": _old, "conv_first.weight": _new, "body.0.weight": _compact}
"""By the first layer's weight."""
