"""X/Y/Z plots."""

import pytest
from PIL import Image

from graphc_images.errors import SettingError
from graphc_images.plots import NOTHING, NUMBERS, SPECIAL, Plot, axis_of
from graphc_images.settings import Settings

ASKED = Settings("a red circle and a blue square", negative_prompt="red", seed=1, steps=2)

AXES = {
    "steps": ("1-3", "steps", [1, 2, 3]),
    "CFG Scale": ("1-2 (+0.5)", "cfg_scale", [1.0, 1.5, 2.0]),
    "Sampler": ("Euler, DPM++ 2M", "sampler", ["Euler", "DPM++ 2M"]),
    "Size": ("64x72, 80x64", "width", [64, 80]),
    "Prompt S/R": ("red, green", "prompt", [ASKED.prompt, "a green circle and a blue square"]),
    "Prompt order": ("red, blue", "prompt", [ASKED.prompt, "a blue circle and a red square"]),
}


@pytest.mark.parametrize("name", AXES)
def test_axes(name):
    values, setting, expected = AXES[name]
    axis = axis_of(name, values)
    assert len(axis.labels) == len(expected)
    assert [getattr(change(ASKED), setting) for change in axis.changes] == expected


WRONG = {
    "there is no axis 'Stepz'; there are Seed, ": ("Stepz", "1"),
    "not a width x height": ("Size", "64"),
    "the prompt does not hold 'pink', which is": ("Prompt S/R", "pink, red"),
    "the prompt does not hold 'pink'": ("Prompt order", "pink, red"),
    "steps: 0 is not": ("Steps", "0"),
    "there are no values": ("Sampler", ""),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_axes(message):
    with pytest.raises(SettingError) as error:
        [change(ASKED) for change in axis_of(*WRONG[message]).changes]
    assert message in str(error.value)


def test_every_setting_of_an_axis_is_one():
    assert {setting for setting, _ in NUMBERS.values()} <= set(Settings.__dataclass_fields__)
    assert not set(NUMBERS) & set(SPECIAL)
    assert axis_of("nothing", "") is NOTHING


@pytest.mark.torch
def test_a_plot(tmp_path):
    pytest.importorskip("torch")
    from small_checkpoint import small_modules, write_small

    import graphc_images

    pipeline = graphc_images.load(write_small(tmp_path / "small.safetensors", small_modules()), threads=2)
    asked = Settings("a red circle", width=64, height=64, steps=1)
    made = Plot(pipeline, asked, axis_of("Seed", "1, 2, 3"), axis_of("CFG Scale", "1, 4"))
    assert made.grids() == []
    count = sum(1 for _ in made)
    assert count == 6 * 2  # a step, and the finished picture
    assert [picture.seed for picture in made.pictures] == [1, 2, 3, 1, 2, 3]
    ((label, grid),) = made.grids()
    assert label == ""
    assert isinstance(grid, Image.Image)
    assert grid.width >= 3 * 64
    alone = pipeline("a red circle", width=64, height=64, steps=1, seed=2, cfg_scale=4.0)
    assert made.pictures[4].image.tobytes() == alone[0].image.tobytes()
    with pytest.raises(SettingError, match="width: 60 is not a multiple of 8"):
        Plot(pipeline, asked, axis_of("Size", "64x64, 60x64"))
