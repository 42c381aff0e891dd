"""Random numbers: known first values, and PyTorch's own for the same seeds."""

import itertools

import numpy as np
import pytest
from oracles import ORACLES

from graphc_images.errors import SettingError
from graphc_images.noise import BatchNoise, BrownianTree, ImageNoise, Philox, TorchCpu, brownian_noise, noise_source
from graphc_images.noise.sources import LERP_ABOVE, pasted, slerp

KARRAS = [14.614643096923828, 9.10292911529541, 5.478392124176025, 1.0, 0.029167158529162407, 0.0]
"""Karras' first levels of ten and the last, in float32 as PyTorch has them: the sixth digit counts."""


@pytest.mark.parametrize(
    ("seed", "values"),
    [
        (0, [-0.9246624, -0.4253440, -2.6438458, 0.1451839, -0.1208665, -0.5797257]),
        (1, [-0.2962778, 2.676448, -0.1408464]),
        (42, [0.1940189, 2.1613739, -0.1720510]),
        (2**32 + 5, [-2.8427474, 1.3404924, 0.2722309]),
    ],
)
def test_philox_gives_what_cuda_gives(seed, values):
    np.testing.assert_allclose(Philox(seed).normal([len(values)]), values, atol=1e-7)


def test_philox_goes_on_with_the_next_call():
    generator = Philox(0)
    first = generator.normal([2, 3])
    assert first.dtype == np.float32
    np.testing.assert_allclose(generator.normal([3]), [0.1808259, -0.5522627, 0.9238134], atol=1e-7)
    assert generator.normal([0]).shape == (0,)


@pytest.mark.torch
@pytest.mark.parametrize("count", [0, 1, 7, 15, 16, 17, 20, 31, 32, 100, 255, 4096])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_torch_cpu_gives_the_bits_of_torch(count, dtype):
    """As PyTorch computes with AVX2 or better; the second and third arrays say that the state is right after the first."""
    import torch

    exact = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    for seed in (0, 1, 42, 2**32 - 1, 2**40 + 7):
        theirs, ours = torch.Generator().manual_seed(seed), TorchCpu(seed)
        for size in (count, 3, 18):
            expected = torch.randn(size, generator=theirs, dtype=getattr(torch, dtype)).numpy()
            found = ours.normal([size], getattr(np, dtype))
            assert found.dtype == expected.dtype
            if exact:
                np.testing.assert_array_equal(found, expected)
            else:
                np.testing.assert_allclose(found, expected, atol=3e-6 if dtype == "float32" else 2e-3)


@pytest.mark.torch
def test_torch_cpu_uniform_is_torch_rand():
    import torch

    np.testing.assert_array_equal(
        TorchCpu(0).uniform([5, 7]), torch.rand(5, 7, generator=torch.Generator().manual_seed(0))
    )


def test_torch_cpu_without_torch():
    generator = TorchCpu(0)
    np.testing.assert_allclose(generator.normal([256])[:4], [-1.1258398, -1.1523602, -0.2505786, -0.4338788], atol=1e-7)
    np.testing.assert_allclose(generator.normal([16])[:3], [-0.0393725, -0.8014722, -0.4955443], atol=1e-7)
    np.testing.assert_allclose(TorchCpu(0).normal([20])[4:6], [0.5988395, -1.5550951], atol=1e-7)
    np.testing.assert_allclose(TorchCpu(0).normal([8])[:3], [1.5409961, -0.2934289, -2.1787894], atol=1e-7)


@pytest.mark.parametrize("case", ORACLES["brownian"], ids=lambda case: f"{case['seed']}")
def test_the_tree_is_torchsde(case):
    """Increments of torchsde 0.2.6 between many times, in any order, ends outside of the tree among them."""
    low, high = case["ends"]
    tree = BrownianTree(low, high, case["shape"], case["seed"], lambda seed, shape: TorchCpu(seed).normal(shape))
    for start, end, values in case["increments"]:
        np.testing.assert_allclose(tree(start, end).reshape(-1)[: len(values)], values, rtol=0, atol=2e-6)


def test_the_tree_is_additive_and_forgets_nothing_that_matters():
    tree = BrownianTree(0.03, 14.6, [4, 2, 2], 5, lambda seed, shape: Philox(seed).normal(shape))
    times = np.sort(np.random.default_rng(0).uniform(0.03, 14.6, 60)).round(6)
    first = tree(times[0], times[1])
    steps = sum(tree(a, b) for a, b in itertools.pairwise(times))
    np.testing.assert_allclose(steps, tree(times[0], times[-1]), atol=1e-4)
    np.testing.assert_array_equal(tree(times[0], times[1]), first)
    assert not tree(3.0, 3.0).any()
    assert not tree(3.0, 3.0000001).any()


@pytest.mark.parametrize(
    ("mode", "generator", "steps"),
    [
        (
            "comfyui",
            "cpu",
            [[0.0717456, -1.1973678, -0.1058666, 1.1643318], [0.7353407, 2.6995931, 0.7655611, 0.1206935]],
        ),
        ("a1111", "nv", [[-0.0121257, -1.4983236, -1.1672463, -0.2818784]]),
    ],
)
def test_noise_of_brownian_samplers(mode, generator, steps):
    noise = brownian_noise(mode, [1, 4, 8, 8], [0], KARRAS, generator)
    for index, values in enumerate(steps):
        found = noise(KARRAS[index], KARRAS[index + 1])
        assert found.shape == (1, 4, 8, 8)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found.reshape(-1)[:4], values, atol=2e-6)


def test_images_of_a_batch_are_those_of_single_pictures():
    """A1111's mode; ComfyUI's second image is another."""
    together = noise_source("a1111", [3, 4, 8, 8], 7)
    alone = noise_source("a1111", [1, 4, 8, 8], 9)
    np.testing.assert_array_equal(together.first()[2], alone.first()[0])
    np.testing.assert_array_equal(together(2.0, 1.0)[2], alone(2.0, 1.0)[0])
    trees = brownian_noise("a1111", [3, 4, 2, 2], [7, 8, 9], KARRAS)
    np.testing.assert_array_equal(trees(2, 1)[2], brownian_noise("a1111", [1, 4, 2, 2], [9], KARRAS)(2, 1)[0])
    batch = noise_source("comfyui", [3, 4, 8, 8], 7).first()
    assert not np.allclose(batch[2], noise_source("comfyui", [1, 4, 8, 8], 9).first()[0])
    np.testing.assert_array_equal(batch[:1], TorchCpu(7).normal([3, 4, 8, 8])[:1])


def test_comfyui_takes_images_of_a_larger_batch_and_another_seed_for_the_sampler():
    chosen = BatchNoise([2, 4, 8, 8], 3, batch_index=[4, 1]).first()
    generator = TorchCpu(3)
    images = [generator.normal([1, 4, 8, 8]) for _ in range(5)]
    np.testing.assert_array_equal(chosen, np.concatenate([images[4], images[1]]))
    np.testing.assert_array_equal(BatchNoise([2, 4, 8, 8], 3).next(), TorchCpu(4).normal([2, 4, 8, 8]))
    with pytest.raises(SettingError, match="2 images"):
        BatchNoise([2, 4, 8, 8], 3, batch_index=[4])


def test_subseeds_lie_on_the_arc():
    def first(strength, subseed=11):
        return ImageNoise([4, 8, 8], [3], subseeds=[subseed], subseed_strength=strength).first()[0]

    np.testing.assert_array_equal(first(0), Philox(3).normal([4, 8, 8]))
    np.testing.assert_allclose(first(1), Philox(11).normal([4, 8, 8]), atol=1e-6)
    between = first(0.4)
    low, high = Philox(3).normal([4, 8, 8]), Philox(11).normal([4, 8, 8])
    np.testing.assert_array_equal(between, slerp(0.4, low, high))
    assert abs(between.std() - 1) < 0.1
    np.testing.assert_array_equal(slerp(0.25, low, low), low * np.float32(0.25) + low * np.float32(0.75))
    assert LERP_ABOVE < 1
    varied = noise_source("a1111", [2, 4, 8, 8], 3, subseed=11, subseed_strength=0.4).first()
    np.testing.assert_array_equal(varied[0], between)
    np.testing.assert_array_equal(varied[1], slerp(0.4, low, Philox(12).normal([4, 8, 8])))
    with pytest.raises(SettingError, match="subseed"):
        ImageNoise([4, 8, 8], [3, 4], subseeds=[1], subseed_strength=0.1)


@pytest.mark.parametrize("old", [(4, 6), (12, 10), (9, 5), (11, 11), (8, 8)])
def test_seed_resize_keeps_the_middle(old):
    found = ImageNoise([4, 8, 8], [3], resize_from=old).first()[0]
    if old == (8, 8):
        np.testing.assert_array_equal(found, Philox(3).normal([4, 8, 8]))
        return
    small, fresh = Philox(3).normal([4, *old]), Philox(3).normal([4, 8, 8])
    assert found.shape == (4, 8, 8)
    row, column = (3 - (8 - size) // 2 for size in old)
    np.testing.assert_array_equal(found[:, 3:5, 3:5], small[:, row : row + 2, column : column + 2])
    np.testing.assert_array_equal(found, pasted(small, fresh))


def test_the_seed_delta_changes_all_but_the_first_noise():
    plain, moved = ImageNoise([4, 8, 8], [3]), ImageNoise([4, 8, 8], [3], seed_delta=31337)
    np.testing.assert_array_equal(plain.first(), moved.first())
    np.testing.assert_array_equal(moved.next()[0], Philox(3 + 31337).normal([4, 8, 8]))
    assert not np.array_equal(plain.next()[0], Philox(3).normal([4, 8, 8]))


def test_names_that_nothing_has():
    with pytest.raises(SettingError, match="'dice'"):
        ImageNoise([4, 8, 8], [3], generator="dice")
    with pytest.raises(SettingError, match="noise level above 0"):
        brownian_noise("a1111", [1, 4, 8, 8], [3], [0.0])
    for seeds in ([], [-1]):
        with pytest.raises(SettingError, match="0 or above"):
            brownian_noise("a1111", [1, 4, 8, 8], seeds, KARRAS)
    with pytest.raises(SettingError, match="no seeds"):
        ImageNoise([4, 8, 8], [])
