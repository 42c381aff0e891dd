"""The reader of pictures reads what was drawn: else it could not tell what a model painted."""

import numpy as np
import pytest
from shape_reader import background_of, shapes_in

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
