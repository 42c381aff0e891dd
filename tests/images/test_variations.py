"""Axes of grids, prompt matrices, prompts from files."""

import pytest

from graphc_images.errors import SettingError
from graphc_images.prompts.variations import (
    axis_values,
    in_orders,
    prompt_matrix,
    prompts_of_file,
    search_and_replace,
    split_csv,
)


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        ("1-5", int, [1, 2, 3, 4, 5]),
        ("1-5 (+2)", int, [1, 3, 5]),
        ("10-5 (-3)", int, [10, 7]),
        ("1-10 [5]", int, [1, 3, 5, 7, 10]),
        ("1, 7-8,, 20", int, [1, 7, 8, 20]),
        ("-2 - 1", int, [-2, -1, 0, 1]),
        ("0-1 [3]", float, [0, 0.5, 1]),
        ("0.1-0.4 (+0.1)", float, [0.1, 0.2, 0.3, 0.4]),
        ("7.5", float, [7.5]),
        ("1-3 [1]", float, [1]),
        ('a, "b, c", "d ""e"""', str, ["a", "b, c", 'd "e"']),
        ("", int, []),
    ],
)
def test_axis_values(text, kind, values):
    assert axis_values(text, kind) == pytest.approx(values) if kind is not str else axis_values(text) == values


@pytest.mark.parametrize("text", ["x", "1-", "1.5", "5-1", "1-5 (+0)", "1-99999999", "9" * 5000, f"1-{'9' * 400}"])
def test_wrong_values(text):
    with pytest.raises(SettingError):
        axis_values(text, int)


def test_csv_with_lines():
    assert split_csv("a,\nb") == ["a", "b"]


def test_replacing():
    assert search_and_replace("a cat", ["cat", "dog"]) == ["a cat", "a dog"]
    with pytest.raises(SettingError, match="does not hold 'x'"):
        search_and_replace("a cat", ["x", "y"])
    assert in_orders("the a, b.", ["b", "a"]) == ["the b, a.", "the a, b."]


def test_prompt_matrix():
    assert prompt_matrix("base|a, | b") == ["base", "base, a", "base, b", "base, a, b"]
    assert prompt_matrix("base|a", first=True, between=" ") == ["base", "a base"]
    with pytest.raises(SettingError, match="would be"):
        prompt_matrix("|" * 30)


def test_prompts_of_a_file():
    text = (
        "a cat\n\n--prompt \"a dog\" --steps 20 --negative_prompt bad and ugly\n--prompt a b --sampler_name 'Euler a'\n"
    )
    assert prompts_of_file(text) == [
        (1, {"prompt": "a cat"}),
        (3, {"prompt": "a dog", "steps": "20", "negative_prompt": "bad and ugly"}),
        (4, {"prompt": "a b", "sampler_name": "Euler a"}),
    ]
    for wrong in ("--steps", "--steps 1 2", '--prompt "a'):
        with pytest.raises(SettingError, match="line 2"):
            prompts_of_file(f"a\n{wrong}")
