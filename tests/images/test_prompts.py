"""The prompt language: attention, stages, AND, networks, styles, wildcards."""

import random

import pytest

from graphc_images.errors import SettingError
from graphc_images.prompts.attention import Piece, parse_attention
from graphc_images.prompts.extras import Network, split_by_and, strip_comments, take_networks
from graphc_images.prompts.plan import Moment, read_prompt
from graphc_images.prompts.schedule import stages_of
from graphc_images.prompts.styles import Style, apply_styles, read_styles, write_styles
from graphc_images.prompts.wildcards import Wildcards, draw

A1111 = {
    "normal text": [("normal text", 1)],
    "an (important) word": [("an ", 1), ("important", 1.1), (" word", 1)],
    "(unbalanced": [("unbalanced", 1.1)],
    r"\(literal\]": [("(literal]", 1)],
    "(unnecessary)(parens)": [("unnecessaryparens", 1.1)],
    "a (((house:1.3)) [on] a (hill:0.5), sun, (((sky))).": [
        *[("a ", 1), ("house", 1.573), (" ", 1.1), ("on", 1), (" a ", 1.1), ("hill", 0.55), (", sun, ", 1.1)],
        *[("sky", 1.4641), (".", 1.1)],
    ],
    "": [("", 1)],
    "a BREAK b": [("a", 1), ("BREAK", -1), ("b", 1)],
    "(a BREAK b:2)": [("a", 2), ("BREAK", -2), ("b", 2)],
    "a:b [c] d)": [("a:b ", 1), ("c", 1 / 1.1), (" d)", 1)],
    "[a:1.3]": [("a:1.3", 1 / 1.1)],
    "(a:1.2.3)": [("a:1.2.3", 1.1)],
    "(a:-.5)\\": [("a", -0.5), ("", 1)],
}
COMFYUI = {
    "a (b) [c]": [("a ", 1), ("b", 1.1), (" [c]", 1)],
    "(a (b:1.5) c:0.5)": [("a ", 0.5), ("b", 1.5), (" c", 0.5)],
    "((a))": [("a", 1.1 * 1.1)],
    r"\(a\) (b\):2)": [("(a) ", 1), ("b)", 2)],
    "(a": [("(a", 1)],
    "a) (b)": [("a) (b)", 1)],
    "(a:b)": [("a:b", 1.1)],
    "()": [("", 1)],
    "a BREAK b AND c": [("a BREAK b AND c", 1)],
    "": [("", 1)],
}
STAGES = {
    "test": [(10, "test")],
    "a [b:3]": [(3, "a "), (10, "a b")],
    "a [b: 3]": [(3, "a "), (10, "a b")],
    "a [[[b]]:2]": [(2, "a "), (10, "a [[b]]")],
    "[(a:2):3]": [(3, ""), (10, "(a:2)")],
    "a [b : c : 1] d": [(1, "a b  d"), (10, "a  c  d")],
    "a[b:[c:d:2]:1]e": [(1, "abe"), (2, "ace"), (10, "ade")],
    "a [unbalanced": [(10, "a [unbalanced")],
    "a [b:.5] c": [(5, "a  c"), (10, "a b c")],
    "a [{b|d{:.5] c": [(10, "a [{b|d{:.5] c")],
    "((a][:b:c [d:3]": [(3, "((a][:b:c "), (10, "((a][:b:c d")],
    "[a|(b:1.1)]": [(step, "a" if step % 2 else "(b:1.1)") for step in range(1, 11)],
    "[fe|]male": [(step, "female" if step % 2 else "male") for step in range(1, 11)],
    "[fe|||]male": [(step, "female" if step % 4 == 1 else "male") for step in range(1, 11)],
    "a|b [c:3]": [(10, "a|b [c:3]")],  # does not fit the grammar
    "[a:b:20]": [(10, "a")],
    "[a:b:0]": [(10, "b")],
    "[a::.3] \\[b:1\\]": [(3, "a \\[b:1\\]"), (10, " \\[b:1\\]")],
    "[a:b:c]": [(10, "[a:b:c]")],
    "": [(10, "")],
}


def same(pieces, expected):
    assert [piece.text for piece in pieces] == [text for text, _ in expected]
    assert [piece.weight for piece in pieces] == pytest.approx([weight for _, weight in expected])


@pytest.mark.parametrize("prompt", A1111)
def test_attention_of_a1111(prompt):
    same(parse_attention(prompt, "a1111"), A1111[prompt])


@pytest.mark.parametrize("prompt", COMFYUI)
def test_attention_of_comfyui(prompt):
    found = [piece for piece in parse_attention(prompt, "comfyui") if piece.text] or [Piece("", 1)]
    same(found, COMFYUI[prompt])


@pytest.mark.parametrize("prompt", STAGES)
def test_stages(prompt):
    assert list(stages_of(prompt, 10)) == STAGES[prompt]


def test_stages_of_a_second_pass():
    assert list(stages_of("a [b:.5] c", 10, 10)) == [(10, "a b c")]
    assert list(stages_of("a [b:1.5] c", 10, 10)) == [(5, "a  c"), (10, "a b c")]
    assert list(stages_of("a [b:13] c", 10, 10)) == [(3, "a  c"), (10, "a b c")]


def test_the_first_stage_has_a_step_more():
    stages = stages_of("a [b:3]", 10)
    assert [stages.at(step) for step in range(5)] == ["a "] * 4 + ["a b"]
    assert stages.at(99) == "a b"


def test_any_text_is_a_prompt():
    rng = random.Random(3)
    parts = [
        "(",
        ")",
        "[",
        "]",
        ":",
        "|",
        "\\",
        "a",
        ".5",
        "3",
        " AND ",
        "BREAK",
        "<lora:x:1>",
        "{",
        "}",
        "$$",
        "__w__",
        "#",
        "\n",
    ]
    for _ in range(3000):
        prompt = "".join(rng.choice(parts) for _ in range(rng.randrange(20)))
        for mode in ("a1111", "comfyui"):
            plan = read_prompt(prompt, 10, mode, seed=1)
            for text in plan.texts():
                parse_attention(text, mode)
            assert plan.moments()[-1].until == 10


def test_brackets_without_end():
    with pytest.raises(SettingError, match="more than 200 brackets"):
        stages_of("[" * 100_000, 10)
    for mode in ("a1111", "comfyui"):
        with pytest.raises(SettingError, match="more than 200 brackets"):
            parse_attention("(" * 20_000 + "a" + ")" * 20_000, mode)
        assert parse_attention("(" * 200 + "a" + ")" * 200, mode)[-1].text == "a"


def test_sub_prompts():
    assert split_by_and("a AND b :1.2 AND c:-.5") == [("a", 1), (" b", 1.2), (" c", -0.5)]
    assert split_by_and("SAND (a:1.2)") == [("SAND (a:1.2)", 1)]
    plan = read_prompt("a [b:3] AND c:0.5", 10)
    assert plan.moments() == [Moment(3, (("a ", 1), (" c", 0.5))), Moment(10, (("a b", 1), (" c", 0.5)))]
    assert read_prompt("a AND b <lora:x:1>", 5, negative=True).texts() == ["a AND b <lora:x:1>"]
    assert read_prompt("[a:b:2] AND c", 5, "comfyui").texts() == ["[a:b:2] AND c"]


def test_networks():
    text, networks = take_networks("a<lora:x> <Lyco: y :0.5:0.2:8>b<hypernet:z:te=.1:unet=2> <lora:w:dyn=4:3>")
    assert text == "a b "
    assert networks == [
        *[Network("lora", "x"), Network("lora", "y", 0.5, 0.2, 8)],
        *[Network("hypernet", "z", 0.1, 2.0), Network("lora", "w", 3.0, 3.0, 4)],
    ]
    with pytest.raises(SettingError, match="<lora:x:much>: a weight is not a number"):
        take_networks("a <lora:x:much>")


def test_comments():
    assert strip_comments("a # b\n# c\nd") == "a \nd"


def test_styles(tmp_path):
    styles = [Style("one", "a {prompt}, b", "bad"), Style("two", 'c "d"', "")]
    write_styles(tmp_path / "styles.csv", styles)
    read = read_styles(tmp_path / "styles.csv")
    assert list(read.values()) == styles
    assert apply_styles("cat # of mine", [read["one"].prompt, read["two"].prompt]) == 'a cat, b, c "d"'
    assert apply_styles("", ["x"]) == "x"
    (tmp_path / "other.csv").write_text("nothing,here\n1,2\n")
    with pytest.raises(SettingError, match="no column called name"):
        read_styles(tmp_path / "other.csv")
    with pytest.raises(SettingError, match="cannot be read"):
        read_styles(tmp_path / "none.csv")


def test_wildcards(tmp_path):
    (tmp_path / "animals").mkdir()
    (tmp_path / "animals" / "small.txt").write_text("mouse\n# no\n\n{red|blue} ant\n")
    (tmp_path / "colour.txt").write_text("green\n")
    wildcards = Wildcards(tmp_path)
    drawn = {draw("a __animals/small__, __colour__ __none__", seed, wildcards) for seed in range(40)}
    assert drawn == {f"a {animal}, green __none__" for animal in ("mouse", "red ant", "blue ant")}
    assert draw("__animals/*__ and __col?ur__", 1, wildcards).endswith(" and green")
    assert draw("{a|b|c}", 5) == draw("{a|b|c}", 5)


def test_wildcards_that_there_are_not(caplog):
    assert draw("__none__ and {__none__|__none__}", 1) == "__none__ and __none__"
    assert caplog.messages == ["there is no wildcard __none__: it stays as it is"]


def test_choices():
    seeds = range(300)
    assert {draw("{a|b}", seed) for seed in seeds} == {"a", "b"}
    assert {draw("{2$$a|b|c}", seed) for seed in seeds} == {f"{x}, {y}" for x in "abc" for y in "abc" if x != y}
    assert {draw("{2$$ and $$a|b}", seed) for seed in seeds} == {"a and b", "b and a"}
    assert {len(draw("{1-3$$$$a|b|c}", seed)) for seed in seeds} == {1, 2, 3}
    assert 15 < sum(draw("{0.1::a|0.9::b}", seed) == "a" for seed in seeds) < 50
    assert draw("{0::a|1::{x}}", 1) == "x"
    assert draw(f"{{{'9' * 400}::a|0::b}}", 1) == "a"
    assert draw("{999999999$$a}{0::a}{}", 1) == "a"
    assert {draw("{a|{b|c}}", seed) for seed in seeds} == {"a", "b", "c"}


def test_wildcards_that_name_themselves(tmp_path):
    (tmp_path / "loop.txt").write_text("__loop__ a\n")
    (tmp_path / "flood.txt").write_text("__flood__ __flood__ {__flood__|__flood__}\n")
    for name in ("loop", "flood"):
        with pytest.raises(SettingError, match="without end"):
            draw(f"__{name}__", 1, Wildcards(tmp_path))


def test_a_whole_prompt():
    plan = read_prompt("{cat} <lora:x:2> # now", 4, styles=["a {prompt}"], seed=3)
    assert plan.text == "a cat <lora:x:2>"
    assert plan.texts() == ["a cat"]
    assert plan.networks == (Network("lora", "x", 2.0, 2.0),)


def test_numbers_without_end():
    nines = "9" * 5000
    for mode in ("a1111", "comfyui"):
        for text in (
            f"(a:{nines})",
            f"(a:1e{nines})",
            f"[a:{nines}]",
            f"a AND b:{nines}",
            f"{{{nines}$$a|b}}",
            f"(a:1.{nines})",
        ):
            plan = read_prompt(text, 10, mode, seed=1)
            weights = [piece.weight for each in plan.texts() for piece in parse_attention(each, mode)]
            assert max(map(abs, [*weights, *(part.weight for part in plan.parts)])) < 1e10
    for weight in ("inf", "nan", nines):
        with pytest.raises(SettingError, match="a weight is not finite"):
            read_prompt(f"<lora:x:{weight}>", 10)
