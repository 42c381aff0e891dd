import re

import numpy as np
import pytest
from cpp_programs import PROGRAMS, Modules, dtypes, hostile
from hypothesis import given
from hypothesis import strategies as st

from graphc.errors import GraphcError
from graphc.ir.types import F32
from graphc.shapes import bind, dim_max, dim_min, symbol
from graphc.targets.ggml.cpp import render_project
from graphc.targets.ggml.cpp.body import float_literal, literal, wrapped
from graphc.targets.ggml.cpp.names import (
    RESERVED,
    Names,
    comment,
    identifier,
    singular,
    snake,
    string_literal,
    type_name,
)
from graphc.targets.ggml.cpp.sizes import SizeNames
from graphc.targets.ggml.program.program import Output, Program
from graphc.targets.ggml.program.tensor import Constant, ProgramError

OCTAL = re.compile(rb"\\([0-7]{3})")


def header_of(files):
    """The path of a project's header."""
    (path,) = (path for path in files if path.startswith("include/"))
    return path


def test_no_source_says_where_it_lies():
    """A program would have folders of the machine that built it; and a compiler's cache would know no project again."""
    for path, content in render_project(PROGRAMS["flat"](), "flat").items():
        assert not re.search(r"(?<!static_)\bassert\(|\b__FILE__\b|\bGGML_(ASSERT|ABORT)\(", content), path


@given(st.text())
def test_an_identifier_is_one(text):
    name = identifier(text)
    assert re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
    assert name not in RESERVED
    assert "__" not in name
    assert identifier(name) == name


@given(st.text())
def test_a_type_name_is_an_identifier(text):
    assert re.fullmatch(r"[A-Za-z_]\w*", type_name(text), re.ASCII)


@given(st.text())
def test_a_string_literal_holds_the_bytes_of_the_text(text):
    code = string_literal(text)
    assert re.fullmatch(r'"([ !#-\[\]-~]|\\[0-7]{3})*"', code)
    assert "?" not in code
    value = OCTAL.sub(lambda match: bytes([int(match[1], 8)]), code[1:-1].encode())
    assert value == text.encode("utf-8", "backslashreplace")


@given(st.text())
def test_a_comment_stays_one_line(text):
    assert re.fullmatch(r"[ -~]*", comment(text))
    assert "\\" not in comment(text)
    assert "??/" not in comment(text)


def test_names_of_one_scope_differ():
    names = Names(frozenset({"x"}))
    assert [names.fresh("x"), names.fresh("x"), names.fresh("y"), names.fresh("y", "z"), names.fresh("y", "z")] == [
        "x_2", "x_3", "y", "z", "z_2"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("many", "one"),
    [("blocks", "block"), ("layers", "layer"), ("entries", "entry"), ("classes", "class"), ("bias", "bias"),
     ("boxes", "box"), ("ss", "ss"), ("h", "h"), ("corpus", "corpus"), ("axis", "axis")],
)  # fmt: skip
def test_singular(many, one):
    assert singular(many) == one


def test_spellings():
    assert type_name("down_block") == "DownBlock"
    assert type_name("sd15 unet-small") == "Sd15UnetSmall"
    assert snake("Sd15UnetSmall") == "sd15_unet_small"
    assert identifier("int") == "int_"
    assert identifier("NULL") == "NULL_"
    assert identifier("7") == "value_7"
    assert identifier("ggml_add") == "ggml_add_"


@given(st.floats(width=32))
def test_a_float_literal_has_the_bits_of_the_number(number):
    code = float_literal(number)
    if np.isfinite(number):
        assert np.float32(code.removesuffix("f")).tobytes() == np.float32(number).tobytes()
    else:
        assert code in ("NAN", "INFINITY", "-INFINITY")


def test_a_constant_must_be_a_name_of_ggml():
    sizes = SizeNames(Program("p"))
    assert literal(Constant("GGML_TYPE_F16"), sizes) == "GGML_TYPE_F16"
    assert [literal(arg, sizes) for arg in (None, True, 3, -2.5)] == ["nullptr", "true", "3", "-2.5f"]
    with pytest.raises(ProgramError, match="not a constant of ggml"):
        literal(Constant("system(0)"), sizes)


def test_lines_are_wrapped_between_arguments():
    assert wrapped("f(", ["a", "b"], ");", "    ") == ["f(a, b);"]
    lines = wrapped("call(", ["x" * 60, "y" * 60, "z"], ");", "    ")
    assert lines == [f"call({'x' * 60},", f"    {'y' * 60}, z);"]


def sized(*shape):
    program = Program("sized")
    program.add_input("x", F32, shape, "F32")
    return program


class FloorFunctions:
    floor_div = staticmethod(lambda a, b: a // b)
    floor_mod = staticmethod(lambda a, b: a % b)


def computed(code, **sizes):
    """The value of a C++ expression over sizes."""
    for cpp, python in (
        ("std::max<graphc::Size>", "max"),
        ("std::min<graphc::Size>", "min"),
        ("::", "."),
        (" / ", " // "),
    ):
        code = code.replace(cpp, python)
    return eval(code, {"sizes": type("Sizes", (), sizes), "graphc": FloorFunctions})


def test_sizes_are_computed_as_python_does():
    h, w = symbol("h", multiple=8), symbol("w")
    dims = [h, h // 8, 3 * h * w + 2, -h + w, (w - 9) // 2, (w - 9) % 4, dim_max(w, 5) * 2, dim_min(h, w) + 1, w // 3]
    names = SizeNames(sized(h, w))
    for dim in [*dims, w % 3, (h + w) // (w + 1), 7]:
        expected = bind(dim, {"h": 16, "w": 5})
        assert computed(names.expression(dim), h=16, w=5) == expected, dim
        assert computed(f"2 * {names.operand(dim)}", h=16, w=5) == 2 * expected, dim


def test_a_size_that_stands_in_no_shape_alone_is_solved_for():
    n = symbol("n")
    (solution,) = SizeNames(sized(4, 2 * n + 3)).solutions
    assert (solution.symbol.name, solution.axis, solution.factor, solution.offset) == ("n", 1, 2, 3)
    (solution,) = SizeNames(sized(2 * n, n)).solutions
    assert (solution.axis, solution.plain) == (1, True)


def test_a_size_that_no_input_gives_is_refused():
    with pytest.raises(GraphcError, match="no input has the size m, n"):
        SizeNames(sized(symbol("n") * symbol("m")))


def test_hostile_names_are_only_in_strings_and_comments():
    files = render_project(hostile())
    for path in (header_of(files), "model.cpp", "weights.cpp", "main.cpp", "CMakeLists.txt"):
        text = files[path].replace("#include", "").replace("#pragma once", "")
        code = re.sub(r'"[^"\n]*"|//[^\n]*', "", text)
        assert not re.search(r"system\s*\(|[#?%\\]|[^ -~\n]", code), path


def test_an_output_that_is_an_input_is_refused():
    b = Modules("direct")
    x = b.program.add_input("x", F32, (2,), "F32")
    b.output(x, "y")
    with pytest.raises(GraphcError, match="output y is an input or a weight itself"):
        render_project(b.program)


def test_the_runtime_files_are_in_the_package():
    files = render_project(PROGRAMS["flat"]())
    assert {
        "runtime/graphc/npy.cpp",
        "runtime/graphc/model.h",
        "runtime/model.cmake",
        "CMakeLists.txt",
        "README.md",
    } <= set(files)


def test_a_weight_of_each_name_has_a_place():
    for program in (hostile(), dtypes(), *(make() for make in PROGRAMS.values())):
        code = render_project(program)["weights.cpp"]
        places = re.findall(r"\{&(weights\.[\w.\[\]]+), ", code)
        assert len(places) == len(set(places)) == len(program.weights)


def test_an_output_must_be_of_its_dtype():
    b = Modules("wrong")
    x = b.unary("ggml_relu", b.program.add_input("x", F32, (2,), "F32"))
    b.program.outputs.append(Output("y", np.dtype(np.int64), (2,), x))
    with pytest.raises(GraphcError, match="output y of int64 cannot be read from F32"):
        render_project(b.program)


def of_weights(names):
    """A program that adds up weights of these names, and their tree."""
    b = Modules("weights")
    x = b.program.add_input("x", F32, (3,), "F32")
    for name in names:
        x = b.binary("ggml_add", x, b.weight(name, 3))
    return b.output(b.unary("ggml_relu", x), "y").program


PARTS = st.lists(
    st.sampled_from(["a", "b", "A", "0", "1", "2", "a_", "a_2", "weight", "int", "é"]), min_size=1, max_size=4
)


@given(st.lists(PARTS.map(".".join), max_size=12))
def test_any_names_of_weights_have_places(names):
    files = render_project(of_weights(names))
    places = re.findall(r"\{&(weights[\w.\[\]]+), ", files["weights.cpp"])
    assert len(set(places)) == len(names)
    structs = re.findall(r"^struct (\w+) \{\n((?:    .*\n)*)\};", files[header_of(files)], re.MULTILINE)
    known = {"Inputs", "Outputs"}
    for name, body in structs:
        members = re.findall(
            r"^    (?:std::array<)?([\w:]+)(?: \*)?(?:, \d+>)? (\w+)(?: = nullptr|\{\})?;", body, re.MULTILINE
        )
        assert len({member for _, member in members}) == len(members)
        assert name not in known or name in ("Inputs", "Outputs")
        for type, member in members:
            assert type in known | {"ggml_tensor", "graphc::Array"}
            assert member not in known - {"Inputs", "Outputs"}
        known.add(name)


def test_what_is_made_of_a_parameter_stands_beside_it():
    tree = render_project(of_weights(["norm.weight.scaled", "norm.weight", "norm.bias"]))["weights.cpp"]
    assert re.findall(r"&(weights[\w.]+)", tree) == [
        "weights.norm.weight_scaled",
        "weights.norm.weight",
        "weights.norm.bias",
    ]


def test_a_module_inside_one_of_its_name_has_its_own_struct():
    names = ["block.fc.weight", "block.block.fc.weight", "block.block.block.fc.weight"]
    files = render_project(of_weights(names))
    header = files[header_of(files)]
    for name, body in re.findall(r"^struct (\w+) \{\n((?:    .*\n)*)\};", header, re.MULTILINE):
        assert f"    {name} " not in body


def test_very_deep_names_are_no_modules():
    files = render_project(of_weights([".".join(["a"] * 5000), "b.c"]))
    assert "weights.constant" in files["weights.cpp"] or "weights.bias" in files["weights.cpp"]


@pytest.mark.parametrize(
    "title", ["inputs", "weights", "graphc", "std", "test", "m", "all", "123", "int", "é", "NULL", "main"]
)
def test_any_title_names_a_namespace_and_a_class(title):
    files = render_project(PROGRAMS["flat"](), title)
    (namespace,) = re.findall(r"^namespace (\w+) \{$", files[header_of(files)], re.MULTILINE)
    (name,) = re.findall(r"^class (\w+) : public graphc::Model", files[header_of(files)], re.MULTILINE)
    assert namespace not in RESERVED | {"test", "m", "all"}
    assert name not in {"Inputs", "Outputs", "Sizes", "Weights", namespace}
    assert header_of(files) == f"include/{namespace}/model.h"
    assert f"graphc_add_model({namespace}" in files["CMakeLists.txt"]


def test_names_say_what_tensors_are_to_those_that_read_them():
    b = Modules("roles")
    q, k, m = (b.program.add_input(name, F32, (1, 2, 4, 4), "F32") for name in "qkm")
    b.at("layer")
    cos, sin = (b.weight(name, 4, 4) for name in ("val_1", "val_2"))
    q, k = (b.rotary(each, cos, sin, False) for each in (q, k))
    v = b.matmul(b.weight("val_3", 1, 2, 4, 4), b.at("layer", "v").unary("ggml_neg", k))
    b.at()
    mask = b.unary("ggml_neg", b.unary("ggml_abs", m))
    y = b.cont(b.at("layer").attention(q, k, v, mask, 0.5))
    files = render_project(b.output(y, "y").program)
    code = files["model.cpp"]
    assert re.findall(r"&(weights[\w.]+)", files["weights.cpp"]) == [
        "weights.layer.cos",
        "weights.layer.sin",
        "weights.layer.v.weight",
    ]
    assert "ggml_tensor * mask = ggml_abs(ctx, m);" in code
    assert "mask = ggml_neg(ctx, mask);" in code
    assert "v = graphc::linear(ctx, v, weights.layer.v.weight);" in code


def test_what_is_asked_for_its_size_keeps_its_name():
    """A sum of each size, whose sizes a reshape takes too."""
    b = Modules("sizes")
    for number, size in enumerate((4, 2, 3)):
        x = b.program.add_input(f"x{number}", F32, (1, size, size, 6), "F32")
        other = b.program.add_input(f"other{number}", F32, (1, size * size, 6), "F32")
        b.at("layers", str(number))
        rows = b.reshape(b.unary("ggml_neg", x), (1, size * size, 6))
        y = b.binary("ggml_add", b.call("ggml_mul_mat", b.weight(f"layers.{number}.weight", 6, 6), rows, rank=3), other)
        b.output(y, f"y{number}")
    code = render_project(b.program)["model.cpp"]
    assert "ggml_tensor * residual)" in code
    assert "residual->ne[1]" in code
