"""Upscalers in the three kinds of files that there are, beside the same networks in PyTorch."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from graphc_images.commands import image as command
from graphc_images.errors import ModelError, SettingError
from graphc_images.folders import ModelFolders
from graphc_images.models import Loaded, TooLarge
from graphc_images.upscalers import Enlargers, Upscaler, load_upscaler, made_larger
from graphc_images.upscalers.networks import network_of
from graphc_images.upscalers.upscaler import shuffled, unshuffled

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional
pytestmark = pytest.mark.torch


def conv(inputs, outputs):
    return nn.Conv2d(inputs, outputs, 3, padding=1)


def leaky(x):
    return functional.leaky_relu(x, 0.2)


class Dense(nn.Module):
    def __init__(self, features, growth):
        super().__init__()
        for number in range(5):
            self.add_module(f"conv{number + 1}", conv(features + number * growth, growth if number < 4 else features))

    def forward(self, x):
        seen = [x]
        for number in range(1, 5):
            seen.append(leaky(getattr(self, f"conv{number}")(torch.cat(seen, 1))))
        return x + 0.2 * self.conv5(torch.cat(seen, 1))


class Block(nn.Module):
    def __init__(self, features, growth):
        super().__init__()
        self.rdb1, self.rdb2, self.rdb3 = (Dense(features, growth) for _ in range(3))

    def forward(self, x):
        return x + 0.2 * self.rdb3(self.rdb2(self.rdb1(x)))


class RRDB(nn.Module):
    """BasicSR's: for scales of 2 and 1, squares of pixels come in as channels."""

    def __init__(self, scale=4, blocks=2, features=8, growth=4, colours=3):
        super().__init__()
        self.unit = 4 // scale
        self.conv_first = conv(colours * self.unit**2, features)
        self.body = nn.Sequential(*(Block(features, growth) for _ in range(blocks)))
        self.conv_body, self.conv_up1, self.conv_up2, self.conv_hr = (conv(features, features) for _ in range(4))
        self.conv_last = conv(features, colours)

    def forward(self, x, ups=2):
        first = self.conv_first(functional.pixel_unshuffle(x, self.unit))
        x = first + self.conv_body(self.body(first))
        for up in (self.conv_up1, self.conv_up2)[:ups]:
            x = leaky(up(functional.interpolate(x, scale_factor=2, mode="nearest")))
        return self.conv_last(leaky(self.conv_hr(x)))


class Compact(nn.Module):
    """SRVGGNetCompact."""

    def __init__(self, scale=4, convolutions=3, features=8):
        super().__init__()
        self.scale = scale
        layers = [conv(3, features), nn.PReLU(features)]
        for _ in range(convolutions):
            layers += [conv(features, features), nn.PReLU(features)]
        self.body = nn.Sequential(*layers, conv(features, 3 * scale**2))

    def forward(self, x):
        grown = functional.interpolate(x, scale_factor=self.scale, mode="nearest")
        return functional.pixel_shuffle(self.body(x), self.scale) + grown


def seeded(module, seed=0):
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            wide = parameter.dim() == 4
            size = parameter[0].numel() ** -0.5 if wide else 0.1
            parameter.copy_(torch.randn_like(parameter) * size)
    return module.eval().requires_grad_(False)


def in_old_names(module, ups):
    """The state of an RRDBNet, as ESRGAN's own code names it; of `ups` layers that enlarge."""
    tops = ["conv_first", *("conv_up1", "conv_up2")[:ups], "conv_hr", "conv_last"]
    places = [0, *range(3, 3 + 3 * ups, 3), 2 + 3 * ups, 4 + 3 * ups]
    named = dict(zip(tops, places, strict=True)) | {"conv_body": f"1.sub.{len(module.body)}"}
    found = {}
    for name, tensor in module.state_dict().items():
        inner = re.fullmatch(r"body\.(\d+)\.rdb(\d)\.conv(\d)\.(\w+)", name)
        if inner:
            found["model.1.sub.{}.RDB{}.conv{}.0.{}".format(*inner.groups())] = tensor
        elif (top := name.partition(".")[0]) in named:
            found[f"model.{named[top]}.{name.partition('.')[2]}"] = tensor
    return found


def noise(*shape):
    return np.random.default_rng(1).uniform(0, 1, shape).astype(np.float32)


def check(upscaler, module, scale, **settings):
    assert upscaler.scale == scale
    for batch, height, width in ((1, 12, 16), (2, 5, 7), (1, 1, 3)):
        unit = getattr(module, "unit", 1)
        pixels = noise(batch, 3, height, width)
        padded = np.pad(pixels, [(0, 0), (0, 0), (0, -height % unit), (0, -width % unit)], mode="reflect")
        expected = module(torch.from_numpy(padded), **settings).numpy()[:, :, : height * scale, : width * scale]
        found = upscaler.run(pixels)
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 1e-5 * max(1, np.abs(expected).max())


@pytest.mark.parametrize(("scale", "blocks", "features"), [(4, 2, 8), (2, 1, 12), (1, 3, 4)])
def test_rrdb(tmp_path, scale, blocks, features):
    module = seeded(RRDB(scale, blocks, features))
    file = tmp_path / "new.pth"
    worse = {name: 0 * tensor for name, tensor in module.state_dict().items()}
    torch.save({"params": worse, "params_ema": module.state_dict()}, file)
    check(load_upscaler(file, threads=1), module, scale)


@pytest.mark.parametrize("ups", [0, 1, 2])
def test_esrgan_by_its_old_names(tmp_path, ups):
    module = seeded(RRDB())
    file = tmp_path / "old.pth"
    torch.save(in_old_names(module, ups), file)
    check(load_upscaler(file, threads=1), module, 2**ups, ups=ups)


@pytest.mark.parametrize(("scale", "convolutions"), [(4, 3), (2, 1), (1, 0)])
def test_compact(tmp_path, scale, convolutions):
    from safetensors.torch import save_file

    module = seeded(Compact(scale, convolutions))
    half = {name: tensor.half() for name, tensor in module.state_dict().items()}
    save_file(half, tmp_path / "compact.safetensors")
    module.load_state_dict({name: tensor.float() for name, tensor in half.items()})
    check(load_upscaler(tmp_path / "compact.safetensors", threads=1), module, scale)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "ESRGAN" / "sharp.pth"
    path.parent.mkdir()
    torch.save(seeded(Compact(2)).state_dict(), path)
    return path


def picture(width=40, height=28, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8))


def pixels_of(found):
    return np.asarray(found, np.int16)


def test_tiles_are_the_whole_but_at_their_seams(file):
    upscaler = load_upscaler(file, threads=1)
    whole = upscaler(picture(), tile=0)
    assert whole.size == (80, 56)
    different = np.abs(pixels_of(upscaler(picture(), tile=24, overlap=12)) - pixels_of(whole))
    assert np.median(different) == 0
    assert (pixels_of(upscaler(picture())) == pixels_of(whole)).all(), "one tile is the whole"
    with pytest.raises(SettingError, match="cannot overlap"):
        upscaler(picture(), tile=24, overlap=-1)
    with pytest.raises(SettingError, match="upscale_tile: a tile has at least 16 pixels"):
        upscaler(picture(), tile=1)
    assert upscaler(picture(), tile=16, overlap=15).size == upscaler(picture()).size


def test_smaller_tiles_where_memory_is_short(file):
    upscaler = load_upscaler(file, threads=1)
    whole = upscaler(picture(90, 80), tile=0)
    engine = next(iter(upscaler.loaded._models.values()))
    limit = engine.weight_bytes + engine.bytes_for({"x": (1, 3, 45, 45)})
    small = load_upscaler(file, loaded=Loaded(limit), threads=1)
    assert np.median(np.abs(pixels_of(small(picture(90, 80))) - pixels_of(whole))) == 0
    assert small.loaded.nbytes <= limit
    for least in (1000, engine.weight_bytes + 1000):
        with pytest.raises(TooLarge, match="limited to"):
            load_upscaler(file, loaded=Loaded(least), threads=1)(picture())


@pytest.mark.parametrize(
    ("size", "passes"), [((80, 56), 1), ((81, 56), 2), ((1000, 700), 3), ((40, 28), 0), ((20, 99), 2)]
)
def test_passes_until_it_is_large_enough(file, monkeypatch, size, passes):
    upscaler = load_upscaler(file, threads=1)
    sizes = []

    def doubled(self, each, *_):
        sizes.append(each.size)
        return each.resize((each.width * 2, each.height * 2))

    monkeypatch.setattr(Upscaler, "__call__", doubled)
    assert upscaler.upscaled(picture(), *size).size == size
    assert len(sizes) == passes


def test_extras(file):
    ways = Enlargers(ModelFolders(file.parents[1]), Loaded(), 1)
    for name in ("sharp", str(file)):
        assert made_larger(picture(), [ways(name)], 2.0).size == (80, 56)
    both = made_larger(picture(), [ways("sharp"), ways("Nearest")], 2.0, visibility=0.25)
    alone = [pixels_of(made_larger(picture(), [ways(name)], 2.0)) for name in ("sharp", "Nearest")]
    assert np.abs(pixels_of(both) - (alone[0] * 0.75 + alone[1] * 0.25)).max() <= 1
    assert made_larger(picture(), [ways("sharp")], 2.0, (64, 64)).size == (64, 64)
    with pytest.raises(
        SettingError, match=r"there is no upscaler 'shrap'; there is sharp; without a file there are Latent"
    ):
        ways("shrap")
    with pytest.raises(
        SettingError, match=r"there is no upscaler 'none': it is not a file, and none of Latent, .*Lanczos, Nearest"
    ):
        Enlargers(None, Loaded(), 1)("none")
    with pytest.raises(SettingError, match="scale: 0"):
        made_larger(picture(), [ways("sharp")], 0)


def test_on_the_command_line(file, tmp_path):
    picture().save(tmp_path / "in.png")
    target = tmp_path / "out.png"
    typed = ["upscale", tmp_path / "in.png", "--upscaler", "sharp", "--models", file.parents[1], "--scale", "1.5",
             "--upscaler-2", "Lanczos", "--visibility", "0.5", "-o", target, "--threads", "1"]  # fmt: skip
    done = CliRunner().invoke(command, [str(each) for each in typed])
    assert done.exit_code == 0, done.output
    assert Image.open(target).size == (56, 40), "multiples of 8, as A1111 has them"


def test_a_second_pass_and_tiles_of_a_pipeline(file, tmp_path):
    from architecture_models import ENGINES, SMALL

    import graphc_images
    from graphc_images.settings import Settings
    from graphc_images.upscalers.painting import sd_upscale

    small = SMALL["Stable Diffusion 1"]
    pipeline = graphc_images.load(small.write(tmp_path), architectures=[small.architecture], engines=ENGINES, threads=1)
    asked = {"prompt": "a circle", "steps": 2, "seed": 1, "width": 64, "height": 64}
    made = [pipeline(**asked, hires_scale=2.0, hires_upscaler=name)[0].image for name in (str(file), "Nearest")]
    assert made[0].size == (128, 128)
    assert (pixels_of(made[0]) != pixels_of(made[1])).any()
    with pytest.raises(SettingError, match="there is no upscaler 'nothing'"):
        next(pipeline.steps(**asked, hires_scale=2.0, hires_upscaler="nothing"))
    asked |= {"image": picture(56, 48), "denoising_strength": 0.5}
    *steps, last = sd_upscale(pipeline, Settings.of(**asked), str(file), 2.0, 16)
    assert [(each.batch, each.batches) for each in steps if each.step == each.steps == 1] == [(n, 4) for n in range(4)]
    assert not any(each.pictures for each in steps)
    (whole,) = last.pictures
    assert "SD upscale overlap: 16, SD upscale upscaler: sharp" in whole.parameters
    large = whole.image
    assert large.size == (112, 96)
    first = pipeline(**{**asked, "image": pipeline.enlargers(str(file))(asked["image"], 112, 96).crop((0, 0, 64, 64))})
    assert (pixels_of(large)[:32, :48] == pixels_of(first[0].image)[:32, :48]).all(), "what no other tile covers"
    with pytest.raises(SettingError, match="image: there is no picture"):
        next(sd_upscale(pipeline, Settings.of("a circle"), str(file)))
    *_, stopped = sd_upscale(pipeline, Settings.of(**asked), str(file), 2.0, 16, lambda: "stop")
    enlarged = pipeline.enlargers(str(file))(asked["image"], 112, 96)
    assert (pixels_of(stopped.pictures[0].image)[64:] == pixels_of(enlarged)[64:]).all(), "what was not painted"
    assert (pixels_of(stopped.pictures[0].image)[:32] != pixels_of(enlarged)[:32]).any()


def test_what_differs_is_named(file):
    tensors = dict(seeded(Compact(2)).state_dict())
    for change, message in (
        ({"body.2.weight": torch.zeros(8, 8, 1, 1)}, r"but body\.2\.weight of \[n, 8, 3, 3\] is missing"),
        ({"body.1.weight": torch.zeros(5)}, r"but body\.1\.weight not of \[5\]"),
        ({"extra.weight": torch.zeros(5)}, r"is like SRVGGNetCompact, but has more: extra\.weight"),
        (
            {"body.8.weight": torch.zeros(13, 8, 3, 3), "body.8.bias": torch.zeros(13)},
            "takes 3 channels and its last gives 13",
        ),
    ):
        with pytest.raises(ModelError, match=message):
            network_of({**tensors, **change})
    with pytest.raises(ModelError, match=r"the upscaler: it is not an upscaler that is known .* it has unet\.weight"):
        load_upscaler({"unet.weight": np.zeros((4, 4), np.float32)})
    old = in_old_names(seeded(RRDB()), 2)
    del old["model.1.sub.1.RDB2.conv3.0.weight"]
    with pytest.raises(ModelError, match=r"model\.1\.sub\.1\.RDB2\.conv3\.0\.weight of \[n, 16, 3, 3\] is missing"):
        network_of(old)


def test_squares_of_pixels_are_pytorchs():
    x = noise(2, 8, 6, 4)
    assert (unshuffled(x, 2) == functional.pixel_unshuffle(torch.from_numpy(x), 2).numpy()).all()
    assert (shuffled(x, 2) == functional.pixel_shuffle(torch.from_numpy(x), 2).numpy()).all()
