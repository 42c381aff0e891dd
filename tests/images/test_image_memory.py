"""One limit of memory for all parts of a model and what they compute; what does not fit is done in parts."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("torch")
pytest.importorskip("diffusers")
sys.path.insert(0, str(Path(__file__).parent))

from architecture_models import ENGINES, SMALL

import graphc
import graphc_images
from graphc.targets.ggml.run import executor
from graphc_images.errors import SettingError
from graphc_images.models import Conditioning, Loaded, Tiles, TooLarge, load_model, memory
from graphc_images.models.memory import available, held_by, limit_of
from graphc_images.models.parts import decoding, encoding, in_rows, in_tiles

pytestmark = pytest.mark.torch

NAME = "Stable Diffusion 1"
KNOWN = {"architectures": [SMALL[NAME].architecture], "engines": ENGINES, "threads": 1}
ASKED = {"prompt": "a circle", "steps": 2, "seed": 1, "width": 128, "height": 128}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return SMALL[NAME].write(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def whole(file):
    """A picture that was made without a limit, and what parts then held."""
    pipeline = graphc_images.load(file, **KNOWN)
    (picture,) = pipeline(**ASKED)
    held = {key: held_by(engine) for (_, key), engine in pipeline.model.loaded._models.items()}
    pipeline.close()
    return picture, held


class Watched(Loaded):
    """Notes the most that there was at once."""

    most = 0

    def run(self, key, feed):
        found = super().run(key, feed)
        self.most = max(self.most, self.nbytes)
        return found


def test_floats_of_8_bits_are_counted_as_they_are_kept(file, monkeypatch):
    """As float16, which is refused before it is too much; in blocks of ggml's they fit."""
    import ml_dtypes

    from graphc_images.models import memory

    tensors = {
        name: array.astype(ml_dtypes.float8_e4m3fn) if name.startswith("model.") and array.ndim == 2 else array
        for name, array in load_file(file).items()
    }
    model = load_model(tensors, **KNOWN)
    denoiser = model.components["denoiser"]
    narrow = sum(array.nbytes for array in tensors.values() if array.dtype == ml_dtypes.float8_e4m3fn)
    assert denoiser.widened_bytes() == 2 * narrow
    model.warm("denoiser")
    assert model.loaded.nbytes == pytest.approx(denoiser.weight_bytes(), rel=0.02)
    model.close()
    monkeypatch.setattr(memory, "available", lambda: narrow)
    with pytest.raises(TooLarge, match=r"denoiser: its floats of 8 bits take .* as float16, .*--type q8_0"):
        model.warm("denoiser")
    load_model(tensors, **KNOWN, types="q8_0").warm("denoiser")


def test_a_limit_changes_nothing_of_the_picture(file, whole):
    picture, held = whole
    loaded = Watched(max(held.values()) + 1)
    (other,) = graphc_images.load(file, **KNOWN, loaded=loaded)(**ASKED)
    assert other.image.tobytes() == picture.image.tobytes()
    assert loaded.most <= loaded.limit < sum(held.values())


def test_a_limit_that_cannot_be_kept_is_an_error(file):
    pipeline = graphc_images.load(file, **KNOWN, memory="100KiB")
    with pytest.raises(
        TooLarge, match=r"Stable Diffusion 1: clip_l: its weights alone take 9\.\d MiB, .* limited to 0.1 MiB"
    ):
        pipeline(**ASKED)
    assert pipeline.model.loaded.nbytes == 0
    with pytest.raises(graphc.GraphcError, match="is not an amount of memory"):
        graphc_images.load(file, **KNOWN, memory="much")


def test_pictures_of_a_batch_go_one_by_one_where_not_all_fit(file):
    model = load_model(file, **KNOWN)
    x, words = noise(5, 4, 8, 6), noise(5, 77, 48)
    expected = model.denoise(x, np.arange(5) * 100.0, Conditioning(words))
    engine = model.loaded.there((id(model), "denoiser"))
    one, all_of_them = (engine.bytes_for(shapes(batch)) for batch in (1, 5))
    assert 2 * all_of_them > 3 * one
    limited = load_model(file, **KNOWN, memory=engine.weight_bytes + one)
    found = limited.denoise(x, np.arange(5) * 100.0, Conditioning(words))
    assert np.abs(found - expected).max() < 1e-5
    told = limited.denoise(x, 100.0, Conditioning(words[:1]))
    assert np.abs(told[0] - model.denoise(x[:1], 100.0, Conditioning(words[:1]))).max() < 1e-5
    with pytest.raises(TooLarge, match=r"denoiser: weights take .* and what is computed at once .*"):
        load_model(file, **KNOWN, memory=engine.weight_bytes + one - 1).denoise(x, 1.0, Conditioning(words))


def shapes(batch):
    each = {"timestep": (batch,), "perturbed": (batch,)}
    return {"sample": (batch, 4, 8, 6), "encoder_hidden_states": (batch, 77, 48), **each}


def noise(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def test_the_autoencoder_works_on_tiles_where_the_whole_does_not_fit(file):
    model = load_model(file, **KNOWN)
    latent, image = noise(2, 4, 40, 56), np.clip(noise(1, 3, 320, 448), -1, 1)
    whole, encoded = model.decode_latent(latent), model.encode_image(image)
    engine = model.loaded.there((id(model), "vae decoder"))
    small = engine.bytes_for({"latent": (1, 4, 16, 64)})  # more than tiles of 32 x 32, less than the whole
    limited = load_model(file, **KNOWN, memory=engine.weight_bytes + small)
    found = limited.decode_latent(latent)
    assert found.shape == whole.shape
    assert limited.loaded.nbytes <= limited.loaded.limit < engine.weight_bytes + engine.reserved_bytes
    assert np.abs(found - whole).mean() < 0.5 * np.abs(whole).std(), "norms over tiles are not those over the whole"
    assert limited.encode_image(image).shape == encoded.shape
    limited.tiles = Tiles("off")
    with pytest.raises(TooLarge, match="vae decoder: weights take"):
        limited.decode_latent(latent)
    model.tiles = Tiles("on", 256)
    assert (
        model.decode_latent(latent[:, :, :32, :32]) == load_model(file, **KNOWN).decode_latent(latent[:, :, :32, :32])
    ).all()


def test_the_autoencoder_and_the_denoiser_have_their_memory_one_after_the_other(file, monkeypatch):
    held, run = [], Loaded.run

    def noted(loaded, key, feed):
        found = run(loaded, key, feed)
        held.append({name: engine.reserved_bytes > 0 for (_, name), engine in loaded._models.items()})
        return found

    monkeypatch.setattr(Loaded, "run", noted)
    monkeypatch.setattr(memory, "WORTH_PAGING", 1)
    model = load_model(file, **KNOWN)
    latent, words = noise(2, 4, 8, 8), noise(2, 77, 48)
    for _ in range(2):
        model.denoise(latent, 100.0, Conditioning(words))
        model.decode_latent(latent)
    denoiser, decoder = {"denoiser": True, "vae decoder": False}, {"denoiser": False, "vae decoder": True}
    assert held == [{"denoiser": True}, decoder, decoder, denoiser, decoder, decoder], (
        "two pictures, one after the other"
    )


def test_engines_that_take_turns_keep_their_memory(file, monkeypatch):
    paged = []
    monkeypatch.setattr(memory, "page_out", lambda engine: paged.append(engine) or engine.page_out())
    model = load_model(file, **KNOWN)

    def turns():
        for _ in range(3):
            model.encode_tokens("clip_l", np.zeros((1, 77), np.int64))
            model.denoise(noise(1, 4, 8, 8), 100.0, Conditioning(noise(1, 77, 48)))

    turns()
    assert paged, "what runs for the first time has memory made for it"
    paged.clear()
    turns()
    assert not paged


def blurred(array, unit):
    """Each element four times as large, and mixed with those around it: a network without norms."""
    grown = array.repeat(unit, 2).repeat(unit, 3)
    edged = np.pad(grown, [(0, 0), (0, 0), (3, 3), (3, 3)])
    rows, columns = grown.shape[2:]
    return sum(edged[:, :, y : y + rows, x : x + columns] for y in range(7) for x in range(7)) / 49


@pytest.mark.parametrize("sides", [(64, 64), (100, 30), (33, 97), (8, 300), (1, 1)])
def test_tiles_of_what_looks_around_itself_are_the_whole(sides):
    array = noise(2, 3, *sides)
    found = in_tiles(lambda part: blurred(part, 8), array, Tiles("on", 256), decoding(8), (False, False))
    assert near(found, blurred(array, 8))


def test_tiles_of_what_is_seamless_go_on_at_the_other_end():
    array = noise(1, 2, 40, 48)
    around = np.pad(array, [(0, 0), (0, 0), (8, 8), (8, 8)], mode="wrap")
    expected = blurred(around, 8)[:, :, 64:-64, 64:-64]
    found = in_tiles(lambda part: blurred(part, 8), array, Tiles("on", 256), decoding(8), (True, True))
    assert near(found, expected)


def near(found, expected):
    """As near as ComfyUI's blending is: the outermost pixels of a tile, which know nothing of what is around, count little."""
    different = np.abs(found - expected)
    return different.max() < 0.2 and different.mean() < 2e-3


def test_what_never_fits_is_an_error_that_says_so():
    def never(*_):
        raise TooLarge("it is too large")

    small = [(decoding(8), noise(1, 4, 1, 1)), (encoding(8), noise(1, 3, 8, 16)), (decoding(8), noise(1, 4, 31, 2))]
    for sides, array in ((decoding(8), noise(2, 4, 64, 64)), (encoding(8), noise(1, 3, 512, 640)), *small):
        with pytest.raises(TooLarge, match="it is too large"):
            in_tiles(never, array, Tiles(), sides, (False, False))
    with pytest.raises(TooLarge, match="it is too large"):
        in_rows(never, noise(3, 4, 8, 8), np.array(1.0), Conditioning(noise(1, 7, 8)))


def test_encoding_in_tiles_takes_whole_units():
    sizes = []

    def shrunk(part):
        sizes.append(part.shape[2:])
        return part[:, :, ::8, ::8]

    image = noise(1, 3, 264, 520)
    found = in_tiles(shrunk, image, Tiles("on", 128), encoding(8), (False, False))
    assert np.abs(found - image[:, :, ::8, ::8]).max() < 1e-6
    assert all(side % 8 == 0 for size in sizes for side in size)


def test_a_device_gets_what_its_limit_leaves(file, whole, monkeypatch):
    open_one = executor.open_backends
    monkeypatch.setattr(
        executor, "open_backends", lambda name, threads: open_one("cpu", threads) + open_one("cpu", threads)
    )
    picture, _ = whole
    loaded = Watched("7MiB", "gpu")
    (other,) = graphc_images.load(file, **KNOWN, loaded=loaded)(**ASKED)
    assert np.abs(np.asarray(other.image, int) - np.asarray(picture.image)).mean() < 1
    assert len(loaded._models) == 1, "parts that are larger than the limit are there alone"
    with pytest.raises(TooLarge, match="may use"):
        graphc_images.load(file, **KNOWN, loaded=Loaded("300KiB", "gpu"))(**ASKED)


def test_limits_by_device(monkeypatch, tmp_path):
    named = [
        graphc.Device("Vulkan0", "", "GPU", "Vulkan", 16000, 32000),
        graphc.Device("Vulkan1", "", "GPU", "Vulkan", 0, 0),
    ]
    monkeypatch.setattr(graphc, "devices", lambda: named)
    assert limit_of(None, "cpu") is None
    assert limit_of("1KiB", "cpu") == 1024
    assert limit_of("auto", "vulkan0") == limit_of(None, "vulkan") == 15000
    assert limit_of(None, "vulkan1") is limit_of(None, "rpc://here:1") is None
    assert limit_of("1KiB,2KiB", "vulkan0,vulkan1") == 3072
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable:  7 kB\nSwapFree: 1 kB\n")
    assert available(tmp_path / "meminfo") == 8192
    assert available(tmp_path / "none") == float("inf")


def test_without_a_limit_what_the_machine_has_not_is_refused(file, monkeypatch):
    monkeypatch.setattr("graphc_images.models.memory.available", lambda: 1000.0)
    with pytest.raises(TooLarge, match=r"clip_l: what is computed at once takes .* available"):
        graphc_images.load(file, **KNOWN)(**ASKED)


def test_types_of_weights_are_those_that_are_asked_for(file):
    with pytest.raises(SettingError, match="types: there is no part 'unet'; there are denoiser, vae, clip_l"):
        graphc_images.load(file, **KNOWN, types={"unet": "f16"})
    pipeline = graphc_images.load(file, **KNOWN, types={"denoiser": "f16"})
    pipeline(**ASKED)
    engines = {key: engine for (_, key), engine in pipeline.model.loaded._models.items()}
    for key, type in (("denoiser", "F16"), ("clip_l", "F32")):
        largest = max(engines[key].program.weights, key=lambda each: each.nbytes)
        assert largest.tensor.type == type
    about = pipeline.model.components["denoiser"].weight_bytes(type="f16")
    assert 0.8 < about / engines["denoiser"].weight_bytes < 1.2


@pytest.mark.parametrize(("tiling", "axes"), [("on", "xy"), ("x", "x")])
def test_seamless_pictures_are_those_of_circular_convolutions(file, whole, tiling, axes):
    torch = pytest.importorskip("torch")
    pipeline = graphc_images.load(file, **KNOWN)
    model = pipeline.model
    pipeline(**ASKED, tiling=tiling)
    unet, vae = (SMALL[NAME].module(part, file) for part in ("denoiser", "vae"))
    for layer in (each for module in (unet, vae) for each in module.modules() if isinstance(each, torch.nn.Conv2d)):
        circular(layer, axes)
    x, words, image = noise(2, 4, 10, 12), noise(2, 77, 48), np.clip(noise(1, 3, 48, 64), -1, 1)
    expected = unet(torch.from_numpy(x), 601.0, torch.from_numpy(words)).sample.numpy()
    found = model.denoise(x, 601.0, Conditioning(words))
    assert np.abs(found - expected).max() < 2e-5 * np.abs(expected).max()
    scale = model.architecture.latent.scale
    expected = vae.decode(torch.from_numpy(x / np.float32(scale))).sample.numpy()
    assert np.abs(model.decode_latent(x) - expected).max() < 2e-5 * np.abs(expected).max()
    expected = vae.encode(torch.from_numpy(image)).latent_dist.mean.numpy() * scale
    assert np.abs(model.encode_image(image) - expected).max() < 2e-5 * np.abs(expected).max()
    (again,) = pipeline(**ASKED)
    assert again.image.tobytes() == whole[0].image.tobytes(), "it is off again"


def circular(layer, axes):
    """Have PyTorch's layer see the other end along some axes, and zeros along others."""
    torch = pytest.importorskip("torch")
    (high, wide), plain = layer.padding, layer._conv_forward
    layer.padding = (0, 0)

    def forward(picture, weight, bias):
        for axis, sides in (("x", (wide, wide, 0, 0)), ("y", (0, 0, high, high))):
            if any(sides):
                picture = torch.nn.functional.pad(picture, sides, "circular" if axis in axes else "constant")
        return plain(picture, weight, bias)

    layer._conv_forward = forward


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not say what is in use")
def test_nothing_is_left_of_models_that_were_switched(file, tmp_path):
    files = [file, SMALL[NAME].write(tmp_path, seed=1, name="other.safetensors")]

    def used(number):
        pipeline = graphc_images.load(files[number % 2], **KNOWN)
        pipeline.model.tiles = Tiles("on", 64)
        pipeline("a circle", steps=1, seed=1, width=64, height=64)
        pipeline.close()

    for number in range(4):
        used(number)
    before = in_use()
    for number in range(20):
        used(number)
    after = in_use()
    assert after[0] <= before[0], "descriptors"
    assert after[1] - before[1] < 20 << 20, "a MiB for each, where a model has 20"


def in_use():
    """Open descriptors, and bytes of memory, of which what is free is given back first."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return len(list(Path("/proc/self/fd").iterdir())), pages << 12


def test_the_cpu_is_the_cpu_however_it_is_written() -> None:
    loaded = Loaded(device="CPU")
    assert (loaded.device, loaded.limit, loaded.streams) == ("cpu", None, False)
