"""The reader of pictures reads what was drawn: else it could not tell what a model painted."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from shape_reader import background_of, differences, shapes_in

from examples.shapes.scenes import draw_scene, random_scene


@pytest.mark.parametrize("side", [96, 128, 200])
def test_what_is_drawn_is_read(side):
    random = np.random.default_rng(side)
    for _ in range(60):
        scene = random_scene(random)
        image = draw_scene(scene, side)
        assert background_of(image) == scene.background
        found = shapes_in(image)
        drawn = sorted(scene.things, key=lambda thing: thing.x)
        assert sorted((each.colour, each.shape) for each in found) == sorted(
            (each.colour, each.shape) for each in drawn
        )
        for each in found:
            near = min(drawn, key=lambda thing: abs(thing.x - each.x) + abs(thing.y - each.y))
            assert (near.colour, near.shape) == (each.colour, each.shape)
            assert abs(each.height - 2 * near.radius) < 0.1
            assert each.likeness > 0.6


def test_what_was_not_asked_for_is_noticed():
    random = np.random.default_rng(9)
    drawn = [random_scene(random) for _ in range(120)]
    assert not any(differences(scene, draw_scene(scene, 128)) for scene in drawn)
    others = [differences(scene, draw_scene(other, 128)) for scene, other in pairwise(drawn)]
    assert sum(map(bool, others)) > 110
    for scene in drawn:
        if " left of " in scene.caption or " above " in scene.caption:
            first, second = scene.things
            there = replace(first, x=second.x, y=second.y), replace(second, x=first.x, y=first.y)
            assert differences(scene, draw_scene(replace(scene, things=there), 128))
