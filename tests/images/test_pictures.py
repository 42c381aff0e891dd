"""Sizes, masks, fills, seams and hints. OpenCV 5.0's results are recorded as sums of their bytes."""

import zlib

import numpy as np
import pytest
from PIL import Image

from graphc_images.errors import SettingError
from graphc_images.pictures import (
    arrays,
    blending,
    colour,
    filters,
    grids,
    hints,
    masks,
    outpaint,
    preprocessors,
    tiles,
)
from graphc_images.pictures.masks import Box
from graphc_images.pictures.sizes import resize


def pixels(height=48, width=64):
    y, x = np.mgrid[:height, :width]
    return np.stack(
        [(x * x + 3 * y * y) // 23 % 256, x * y // 5 % 256, 128 + 100 * ((x // 9 + y // 7) % 2)], -1
    ).astype(np.uint8)


def mask():
    return Image.fromarray((pixels()[..., 2] > 128).astype(np.uint8) * 255)


def crc(array):
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def test_arrays_and_back():
    picture = Image.fromarray(pixels())
    array = arrays.to_array(picture)
    assert (array.shape, array.dtype, array.min() >= -1, array.max() <= 1) == ((3, 48, 64), np.float32, True, True)
    np.testing.assert_array_equal(arrays.to_picture(array, "round"), pixels())
    half = np.full((3, 1, 1), 0.999 / 127.5 - 1, np.float32)
    assert np.asarray(arrays.to_picture(half)).max() == 0
    assert np.asarray(arrays.to_picture(half, "round")).max() == 1
    assert np.asarray(arrays.to_picture(np.array([np.nan, 9, -9], np.float32).reshape(3, 1, 1))).tolist() == [
        [[0, 255, 0]]
    ]
    with pytest.raises(SettingError, match=r"not \[4, 2, 2\]"):
        arrays.to_picture(np.zeros((4, 2, 2)))
    clear = Image.new("RGBA", (1, 1), (0, 0, 0, 0))
    assert arrays.flatten(clear).getpixel((0, 0)) == (255, 255, 255)


def test_resizing():
    picture = Image.fromarray(pixels())  # 64 x 48
    for mode in ("stretch", "crop", "fill"):
        for size in ((32, 32), (100, 20), (1, 1), (64, 48), (7, 90)):
            assert resize(picture, *size, mode).size == size
    halves = Image.new("RGB", (4, 2), (255, 0, 0))
    halves.paste((0, 0, 255), (0, 0, 1, 2))
    halves.paste((0, 0, 255), (3, 0, 4, 2))
    assert set(map(tuple, np.asarray(resize(halves, 2, 2, "crop")).reshape(-1, 3).tolist())) == {(255, 0, 0)}
    lines = Image.new("RGB", (4, 4), (0, 255, 0))
    lines.paste((255, 0, 0), (0, 0, 4, 1))
    filled = resize(lines, 4, 8, "fill")
    assert [filled.getpixel((1, row)) for row in range(8)] == [(255, 0, 0)] * 3 + [(0, 255, 0)] * 5
    with pytest.raises(SettingError, match="cannot become"):
        resize(picture, 0, 5, "crop")


def test_blurs_are_opencvs():
    assert [crc(masks.blur_mask(mask(), each, each)) for each in (4, 1, 8.5)] == [3870155216, 3993043405, 1503145867]
    assert masks.blur_mask(mask(), 0, 0).tobytes() == mask().tobytes()
    assert crc(preprocessors.blur(pixels(), 9)) == 2694640201
    assert crc(preprocessors.blur(pixels(), 1.5)) == 1295742591
    assert masks.blur_mask(Image.new("L", (1, 1), 255), 4, 4).getpixel((0, 0)) == 255


def test_hints_are_opencvs():
    assert crc(preprocessors.canny(pixels())[..., 0]) == 2103054789
    assert crc(preprocessors.canny(pixels(), 10, 30)[..., 0]) == 3107120912
    assert crc(preprocessors.scribble(pixels())) == 3629191936
    lab = colour.rgb_to_lab(pixels())[[0, 10, 30, 47], [0, 20, 40, 63]]
    assert lab.tolist() == [[33, 175, 63], [83, 190, 36], [227, 93, 176], [144, 197, 75]]
    area = filters.resize_area(pixels().astype(np.float64), 15, 20)[[0, 7, 14], [0, 9, 19]]
    expected = [[0.0625, 0.043, 128.0], [110.4922, 140.1328, 128.0], [184.543, 55.4141, 159.25]]
    np.testing.assert_allclose(area, expected, atol=1e-3)


@pytest.mark.parametrize("name", hints.PREPROCESSORS)
@pytest.mark.parametrize("shape", [(48, 64), (1, 1), (1, 7), (5, 1)])
def test_hints_have_the_size_of_the_picture(name, shape):
    hint = hints.preprocessed(pixels(*shape), name, min(shape), None, None, seed=1)
    assert (hint.shape, hint.dtype) == ((*shape, 3), np.uint8)


def test_other_hints():
    small = preprocessors.tile(pixels(), 4)
    assert small.shape == (12, 16, 3)
    assert small.std() < pixels().std()
    np.testing.assert_array_equal(preprocessors.tile(pixels()), pixels())
    np.testing.assert_array_equal(preprocessors.invert(preprocessors.invert(pixels())), pixels())
    shuffled = preprocessors.shuffle(pixels(), seed=1, scale=16)
    np.testing.assert_array_equal(shuffled, preprocessors.shuffle(pixels(), seed=1, scale=16))
    assert (shuffled != pixels()).mean() > 0.5
    assert set(np.unique(preprocessors.threshold(pixels()))) == {0, 255}
    np.testing.assert_array_equal(preprocessors.recolor(pixels(), by="intensity")[..., 1], pixels().max(-1))
    with pytest.raises(SettingError, match="not 'x'"):
        preprocessors.recolor(pixels(), by="x")
    hint = preprocessors.inpaint(pixels(), np.eye(48, 64))
    assert hint[:, 5, 5].tolist() == [-1, -1, -1]
    assert hint.max() <= 1


def test_the_box_of_a_mask():
    drawn = Image.new("L", (200, 100))
    drawn.paste(255, (10, 40, 50, 50))
    assert masks.masked_box(drawn, 0, 512, 512) == Box(10, 25, 50, 65)
    assert masks.masked_box(drawn, 8, 512, 512) == Box(2, 17, 58, 73)
    assert masks.masked_box(drawn, 32, 512, 512) == Box(0, 4, 82, 86)
    assert masks.masked_box(drawn, 0, 64, 512) == Box(10, 0, 50, 100)
    assert masks.masked_box(Image.new("L", (9, 9)), 4, 8, 8) is None
    assert masks.masked_box(Image.new("L", (9, 3), 255), 4, 8, 8) == Box(0, 0, 9, 3)
    corner = Image.new("L", (100, 100))
    corner.paste(255, (90, 98, 100, 100))
    assert masks.masked_box(corner, 0, 8, 8) == Box(90, 90, 100, 100)


def test_masks():
    alpha = Image.new("RGBA", (2, 1), (9, 9, 9, 255))
    alpha.putpixel((0, 0), (9, 9, 9, 100))
    assert np.asarray(masks.mask_of(alpha)).reshape(-1).tolist() == [0, 255]
    assert np.asarray(masks.mask_of(alpha, rounded=False)).reshape(-1).tolist() == [100, 255]
    assert masks.mask_of(Image.new("RGB", (1, 1), (9, 9, 9))).getpixel((0, 0)) == 9
    soft = masks.latent_mask(masks.blur_mask(mask(), 4, 4), 6, 8, rounded=False)
    assert soft.shape == (6, 8)
    assert 0 < soft.mean() < 1
    assert set(np.unique(masks.latent_mask(masks.blur_mask(mask(), 4, 4), 6, 8))) <= {0, 1}
    small = np.zeros((9, 9), np.float32)
    small[4, 4] = 1
    assert masks.nearest(small, 3, 3).tolist() == [[0] * 3] * 3
    assert masks.grow_mask(small, 3).sum() == 9
    assert masks.grow_mask(small, 0).sum() == 1
    hidden, rounded = masks.inpainting_inputs(np.ones((3, 9, 9), np.float32), small * 0.6)
    assert (hidden[:, 4, 4].tolist(), rounded.sum()) == ([0, 0, 0], 1)


def test_growing_masks_is_convolution_as_in_comfyui():
    import torch

    rng = np.random.default_rng(3)
    drawn = (rng.random((17, 23)) > 0.9).astype(np.float32)
    for size in (1, 2, 5, 6):
        kernel = torch.ones(1, 1, size, size)
        padding = -(-(size - 1) // 2)
        expected = torch.nn.functional.conv2d(torch.tensor(drawn)[None, None], kernel, padding=padding).clamp(0, 1)
        np.testing.assert_array_equal(masks.grow_mask(drawn, size), expected[0, 0, :17, :23])


def test_the_picture_outside_of_the_mask_stays():
    picture = Image.fromarray(pixels())
    result = Image.new("RGB", picture.size, (1, 2, 3))
    whole = masks.overlay_of(picture, mask()).over(result)
    keeps = np.asarray(mask()) == 0
    np.testing.assert_array_equal(np.asarray(whole)[keeps], pixels()[keeps])
    assert set(map(tuple, np.asarray(whole)[~keeps])) == {(1, 2, 3)}
    drawn = Image.new("L", picture.size)
    drawn.paste(255, (10, 12, 20, 22))
    box = masks.masked_box(drawn, 4, 512, 512)
    part = masks.overlay_of(picture, drawn, box).over(Image.new("RGB", (512, 512), (1, 2, 3)))
    changed = (np.asarray(part) != pixels()).any(-1)
    assert np.array_equal(changed, np.asarray(drawn) > 0)
    with pytest.raises(SettingError, match="the mask has 1x1 pixels, the picture 64x48"):
        masks.overlay_of(picture, Image.new("L", (1, 1)))


def test_fills():
    picture = Image.new("RGB", (64, 64), (200, 0, 0))
    drawn = Image.new("L", (64, 64))
    drawn.paste(255, (16, 16, 48, 48))
    picture.paste((0, 255, 0), (16, 16, 48, 48))
    filled = np.asarray(masks.fill_from_around(picture, drawn)).astype(int)
    assert filled[..., 1].max() <= 2
    assert filled[32, 32, 0] > 180
    latent, noise = np.ones((1, 4, 2, 2), np.float32), np.full((1, 4, 2, 2), 5, np.float32)
    here = np.array([[1, 0], [0, 0]], np.float32)
    assert masks.fill_latent(latent, here, noise)[0, 0].tolist() == [[5, 1], [1, 1]]
    assert masks.fill_latent(latent, here, None)[0, 0].tolist() == [[0, 1], [1, 1]]


def test_soft_inpainting():
    settings = blending.SoftInpainting()
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(2, 1, 4, 8, 8)).astype(np.float32)
    painted = np.zeros((1, 1, 8, 8), np.float32)
    painted[..., 4:] = 1
    mixed = blending.blend_latents(old, new, painted, settings)
    np.testing.assert_allclose(mixed[..., :4], old[..., :4], rtol=1e-4)
    np.testing.assert_allclose(mixed[..., 4:], new[..., 4:], rtol=1e-4)
    half = blending.blend_latents(old, new, painted * 0 + 0.5, settings)
    lengths = np.linalg.norm(half, axis=1)
    assert (lengths > np.linalg.norm((old + new) / 2, axis=1) * 0.999).all()
    assert blending.painted_at(np.array([0.0, 0.25, 1.0]), 1.0, settings).tolist() == [0, 0.5, 1]
    assert blending.painted_at(np.array([0.5]), 14.0, settings) < 0.01
    overlay = blending.soft_overlay_mask(
        painted[0, 0], old[0], np.where(painted[0] > 0, old[0] + 3, old[0]), (64, 64), settings
    )
    levels = np.asarray(overlay)
    assert overlay.size == (64, 64)
    assert levels[:, :4].max() < 20
    assert levels[:, 32:].min() > 235
    whole = blending.uncrop(overlay, (100, 100), Box(10, 10, 74, 74))
    assert whole.getpixel((0, 0)) == 0
    assert whole.getpixel((70, 40)) > 250


def test_differential_diffusion():
    drawn = np.array([0, 0.25, 0.5, 1])
    assert blending.differential_mask(drawn, 999, 999, 0).tolist() == [0, 0, 0, 1]
    assert blending.differential_mask(drawn, 499, 999, 0).tolist() == [0, 0, 1, 1]
    assert blending.differential_mask(drawn, 0, 999, 0).tolist() == [1, 1, 1, 1]


def test_colours_are_matched():
    original = Image.fromarray(pixels())
    same = np.asarray(colour.match_colours(original, original)).astype(int)
    assert abs(same - pixels()).mean() < 2  # 8-bit CIELAB there and back
    red = Image.fromarray((pixels() * [0.2, 0.2, 0.2] + [200, 0, 0]).clip(0, 255).astype(np.uint8))
    matched = np.asarray(colour.match_colours(red, original)).astype(float)
    light = np.array([0.299, 0.587, 0.114])
    assert abs(matched @ light - np.asarray(red) @ light).mean() < 2
    gap = lambda each: abs(each.mean((0, 1)) - each.mean() - (pixels().mean((0, 1)) - pixels().mean())).max()  # noqa: E731
    assert gap(matched) < gap(np.asarray(red).astype(float)) / 2
    gray = Image.new("RGB", (4, 4), (9, 9, 9))
    assert colour.match_colours(gray, Image.new("RGB", (2, 2), (200, 200, 200))).getpixel((0, 0)) in (
        (8, 8, 8),
        (9, 9, 9),
    )


def test_outpainting():
    picture, drawn = outpaint.pad_picture(Image.fromarray(pixels()), outpaint.Margins(left=8, bottom=4), feather=10)
    assert picture.size == drawn.size == (72, 52)
    np.testing.assert_array_equal(np.asarray(picture)[:48, 8:], pixels())
    levels = np.asarray(drawn)
    assert levels[0, :8].tolist() == [255] * 8
    assert levels[0, 8:19].tolist() == [int((1 - step / 10) ** 2 * 255 + 1e-9) for step in range(11)]
    assert levels[0, 71] == 0
    assert np.asarray(outpaint.pad_picture(Image.fromarray(pixels()), outpaint.Margins(8))[1])[:, 8:].max() == 0
    edges = np.asarray(outpaint.extend_edges(Image.fromarray(pixels()), outpaint.Margins(1, 2, 3, 4)))
    assert edges.shape == (54, 68, 3)
    assert edges[0, 0].tolist() == pixels()[0, 0].tolist()
    with pytest.raises(SettingError, match="padded by -1"):
        outpaint.pad_picture(Image.fromarray(pixels()), outpaint.Margins(-1))


def test_noise_like_the_picture_is_a1111s():
    picture, drawn = outpaint.pad_picture(Image.fromarray(pixels()), outpaint.Margins(left=16, bottom=8), feather=0)
    made = np.asarray(outpaint.noise_like(picture, drawn)).astype(int)
    np.testing.assert_array_equal(made[:48, 16:], pixels())
    assert made[:, :16].std() > 30
    black = Image.fromarray(np.asarray(picture) * (np.asarray(drawn)[..., None] == 0))
    known = [
        [155, 140, 160],
        [115, 134, 138],
        [95, 130, 128],
        [75, 111, 128],
        [55, 89, 128],
    ]  # by A1111's Outpainting mk2
    assert abs(np.asarray(outpaint.noise_like(black, drawn))[10, :5].astype(int) - known).max() <= 1
    for level in (0, 255):
        with pytest.raises(SettingError, match="the mask must leave a part"):
            outpaint.noise_like(picture, Image.new("L", picture.size, level))


def doubled(part):
    return part.repeat(2, -1).repeat(2, -2)


@pytest.mark.parametrize("shape", [(48, 64), (192, 192), (193, 200), (5, 400), (1, 1)])
def test_tiles_without_seams(shape):
    array = np.random.default_rng(0).random((3, *shape)).astype(np.float32)
    np.testing.assert_allclose(tiles.upscale_tiled(array, doubled, 64, 8), doubled(array), atol=1e-6)
    for tilings in (1, 3):
        result = tiles.run_tiled(array[None], doubled, (64, 64), 16, 2, tilings)
        np.testing.assert_allclose(result, doubled(array)[None], atol=1e-5)
        small = tiles.run_tiled(
            doubled(doubled(array))[None], lambda part: part[..., ::4, ::4], (64, 64), 16, 0.25, tilings
        )
        np.testing.assert_allclose(small, array[None], atol=1e-5)


def test_seams_are_linear():
    count = iter(range(100))
    result = tiles.upscale_tiled(np.zeros((1, 4, 24)), lambda part: np.full_like(part, next(count)), 16, 8)
    np.testing.assert_allclose(result[0, 0], [*[0] * 8, *np.arange(8) / 8, *[1] * 8])
    assert tiles.tile_starts(500, 192, 8) == [0, 154, 308]
    with pytest.raises(SettingError, match="tiles of 8 cannot overlap by 8"):
        tiles.upscale_tiled(np.zeros((1, 4, 24)), doubled, 8, 8)


def test_grids():
    pictures = [Image.new("RGB", (4, 2), (number, 0, 0)) for number in range(6)]
    grid = grids.grid_of(pictures)
    assert grid.size == (12, 4)
    assert [grid.getpixel((x, y))[0] for y in (0, 2) for x in (0, 4, 8)] == list(range(6))
    assert grids.grid_of(pictures, rows=6).size == (4, 12)
    assert grids.grid_of(pictures, rows=4).size == (8, 8)
    assert grids.grid_of([pictures[0], Image.new("RGB", (8, 8))]).size == (16, 8)
    with pytest.raises(SettingError, match="a grid needs a picture"):
        grids.grid_of([])


def test_labels():
    pictures = [Image.new("RGB", (64, 64), (number, 0, 0)) for number in range(6)]
    plain = grids.labelled_grid(pictures, ["", "", ""], ["", ""])
    assert plain.tobytes() == grids.grid_of(pictures, 2).tobytes()
    grid = grids.labelled_grid(pictures, ["Steps: 1", "Steps: 2", "a text of some words"], ["Seed: 1", "Seed: 日"])
    left, top = grid.width - 192, grid.height - 128
    assert left > 48
    assert top > 20
    assert [grid.getpixel((left + x, top + y))[0] for y in (0, 64) for x in (0, 64, 128)] == list(range(6))
    for area in ((left, 0, grid.width, top), (0, top, left, grid.height)):
        assert np.asarray(grid.crop(area)).min() < 100
    with pytest.raises(SettingError, match="6 pictures do not fill 2 columns and 2 rows"):
        grids.labelled_grid(pictures, ["", ""], ["", ""])


def test_masks_of_comfyui_are_resized_as_torch_does():
    import torch

    drawn = np.random.default_rng(0).random((9, 14)).astype(np.float32)
    for size in ((3, 5), (9, 14), (20, 30), (1, 1), (4, 40)):
        expected = torch.nn.functional.interpolate(torch.tensor(drawn)[None, None], size, mode="bilinear")[0, 0]
        np.testing.assert_allclose(masks.bilinear(drawn, *size), expected, atol=1e-6)
    assert masks.bilinear(np.ones((1, 1)), 3, 3).tolist() == [[1] * 3] * 3
