"""Tokens of textual inversion: the numbers are PyTorch's with a larger table, in programs that were compiled without them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

from export import export  # noqa: E402
from frontend_models import model as model_of  # noqa: E402
from frontend_models import value  # noqa: E402
from refitting import node, same  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from suite.quick_cpp import build_quickly  # noqa: E402
from zoo import EXAMPLES  # noqa: E402

import graphc  # noqa: E402
from graphc.compiler import Settings, compile_program, refit  # noqa: E402
from graphc.errors import CheckpointError, EngineError, InputError  # noqa: E402
from graphc.weights.formats.gguf import read_container, write_container  # noqa: E402

pytestmark = pytest.mark.torch

TOKENS, WIDTH = 1000, 64


def vectors(count: int, seed: int = 0, width: int = WIDTH) -> Any:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)) / 4


def encoder() -> tuple[Any, dict[str, Any]]:
    return EXAMPLES["sd15_clip_small"].build()


def with_rows(module: Any, *added: Any) -> Any:
    """The module with a larger table, as transformers makes it."""
    module.resize_token_embeddings(TOKENS + sum(map(len, added)))
    with torch.no_grad():
        module.get_input_embeddings().weight[TOKENS:] = torch.cat(added)
    return module


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(EXAMPLES["sd15_clip_small"], "dynamo", tmp_path_factory.mktemp("clip"))


@pytest.fixture
def model(exported: Path, tmp_path: Path) -> graphc.Model:
    """An engine that was compiled without them."""
    module, _ = encoder()
    return graphc.compile(exported, tmp_path / "m.gguf", names=module.state_dict(), threads=1)


def ids(*added: int) -> np.ndarray:
    """A prompt with some tokens in it."""
    found = encoder()[1]["input_ids"].numpy().copy()
    found[0, 5 : 5 + len(added)] = added
    return found


def expected(module: Any, prompt: np.ndarray) -> list[np.ndarray]:
    with torch.no_grad():
        return [each.numpy() for each in module(torch.from_numpy(prompt))]


def close(found: dict[str, np.ndarray], wanted: list[np.ndarray]) -> None:
    for array, reference in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(array, reference, rtol=1e-4, atol=1e-5 * np.abs(reference).max())


FILES: dict[str, Any] = {
    "a1111.pt": lambda path, rows: torch.save(
        {"string_to_token": {"*": 265}, "string_to_param": {"*": rows}, "name": "cat", "step": 9, "sd_checkpoint": None}, path
    ),
    "module.pt": lambda path, rows: torch.save(
        {
            "string_to_token": {"*": torch.tensor(265)},
            "string_to_param": torch.nn.ParameterDict({"*": torch.nn.Parameter(rows)}),
        },
        path,
    ),
    "a1111.safetensors": lambda path, rows: save_file({"emb_params": rows}, path),
    "sdxl.safetensors": lambda path, rows: save_file({"clip_l": rows, "clip_g": vectors(2, width=96)}, path),
    "diffusers.bin": lambda path, rows: torch.save({"<cat>": rows}, path),
    "learned_embeds.safetensors": lambda path, rows: save_file({"<cat>": rows.half()}, path),
    "one.bin": lambda path, rows: torch.save({"<cat>": rows[0]}, path),
}  # fmt: skip
"""Writers of the files that people have."""


@pytest.mark.parametrize("name", FILES)
def test_the_files_that_people_have(name: str, model: graphc.Model, tmp_path: Path) -> None:
    rows = vectors(3)
    FILES[name](tmp_path / name, rows)
    rows = rows.half().float() if name.startswith("learned") else rows[:1] if name == "one.bin" else rows
    before = model.run(input_ids=ids())
    found = model.load_embeddings({"<cat>": tmp_path / name})
    assert found == model.embeddings == {"<cat>": list(range(TOKENS, TOKENS + len(rows)))}
    prompt = ids(*found["<cat>"])
    close(model.run(input_ids=prompt), expected(with_rows(encoder()[0], rows), prompt))
    same(model.run(input_ids=ids()), before)


def test_several_come_and_go(model: graphc.Model) -> None:
    before = model.run(input_ids=ids())
    assert model.load_embeddings({"<a>": vectors(2, 1).numpy(), "<b>": vectors(1, 2).numpy()}) == {
        "<a>": [1000, 1001], "<b>": [1002],
    }  # fmt: skip
    assert model.load_embeddings({"<c>": {"vectors": vectors(3, 3)}}) == {"<c>": [1003, 1004, 1005]}
    assert model.embeddings["<b>"] == [1002]
    prompt = ids(1005, 1002, 1000)
    module = with_rows(encoder()[0], vectors(2, 1), vectors(1, 2), vectors(3, 3))
    close(model.run(input_ids=prompt), expected(module, prompt))
    with pytest.raises(InputError, match=r"input_ids: 1006 at .* is not in 0\.\.1005"):
        model.run(input_ids=ids(1006))
    with pytest.raises(InputError, match="'<a>' is loaded"):
        model.load_embeddings({"<a>": vectors(1).numpy()})
    model.unload_embeddings()
    assert model.embeddings == {}
    same(model.run(input_ids=ids()), before)
    with pytest.raises(InputError, match=r"input_ids: 1000 at .* is not in 0\.\.999"):
        model.run(input_ids=ids(1000))


def test_they_stay_when_other_weights_are_loaded(model: graphc.Model) -> None:
    from zoo.build import randomize

    model.load_embeddings({"<a>": vectors(2).numpy()})
    other = randomize(encoder()[0], seed=5)
    state = {name: tensor.clone() for name, tensor in other.state_dict().items()}
    model.load_weights(state)
    prompt = ids(1001, 1000)
    close(model.run(input_ids=prompt), expected(with_rows(other, vectors(2)), prompt))
    model.unload_embeddings()
    close(model.run(input_ids=ids()), expected(randomize(encoder()[0], seed=5), ids()))


def test_a_saved_engine_has_them(model: graphc.Model, tmp_path: Path) -> None:
    from zoo.build import randomize

    model.load_embeddings({"<a>": vectors(2).numpy()})
    prompt = ids(1001, 1000)
    wanted = model.run(input_ids=prompt)
    model.save(tmp_path / "grown.gguf")
    same(graphc.load(tmp_path / "grown.gguf", threads=1).run(input_ids=prompt), wanted)
    refit(tmp_path / "grown.gguf", encoder()[0].state_dict(), tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "grown.gguf").read_bytes()
    other = randomize(encoder()[0], seed=5).state_dict()
    model.load_weights(other)
    loaded = graphc.load(tmp_path / "grown.gguf", weights=other, threads=1)
    same(loaded.run(input_ids=prompt), model.run(input_ids=prompt))
    assert loaded.load_embeddings({"<b>": vectors(1).numpy()}) == {"<b>": [1002]}


def test_they_are_what_compiling_the_larger_model_gives(model: graphc.Model, tmp_path: Path) -> None:
    rows = vectors(2)
    module = with_rows(encoder()[0], rows)
    example = replace(EXAMPLES["sd15_clip_small"], build=lambda: (module, encoder()[1]))
    larger = graphc.compile(export(example, "dynamo", tmp_path / "larger"), threads=1)
    model.load_embeddings({"<a>": rows.numpy()})
    same(model.run(input_ids=ids(1001, 1000)), larger.run(input_ids=ids(1001, 1000)))


@pytest.mark.parametrize("dtype", ["f16", "q8_0"])
def test_a_narrow_table_has_narrow_rows(dtype: str, exported: Path, tmp_path: Path) -> None:
    program = compile_program(exported, Settings(dtype=["*token_embedding.weight=" + dtype]))
    graphc.compiler.write(program, tmp_path / "m.gguf")
    model = graphc.load(tmp_path / "m.gguf", threads=1)
    table = encoder()[0].state_dict()["embeddings.token_embedding.weight"].numpy()
    found = model.load_embeddings({"<a>": table[:2]})["<a>"]
    states = [model.run(input_ids=each)["last_hidden_state"] for each in (ids(*found), ids(0, 1))]
    assert np.array_equal(*states)  # what is pooled is where the highest id is


BAD: dict[str, tuple[Any, str]] = {
    "another width": (
        {"clip_g": np.ones((2, 32), np.float32)},
        r"must have vectors of 64 numbers, as the model's tokens have; there is clip_g \[2, 32\]$",
    ),
    "several": (
        {name: np.ones((1, 64), np.float32) for name in "ab"}, r"one tensor of vectors; there is a \[1, 64\], b \[1, 64\]$"
    ),
    "whole numbers": ({"a": np.ones((1, 64), np.int32)}, "vectors of 64 numbers"),
    "no vector": (np.ones((0, 64), np.float32), "at least one vector"),
    "not finite": (np.full((1, 64), np.nan, np.float32), "finite numbers"),
    "no tensors": ({}, "there is none"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_said_and_changes_nothing(case: str, model: graphc.Model) -> None:
    given, message = BAD[case]
    model.load_embeddings({"<a>": vectors(1).numpy()})
    before = model.run(input_ids=ids(1000))
    with pytest.raises(CheckpointError, match=message):
        model.load_embeddings({"<b>": vectors(1).numpy(), "<c>": given})
    assert model.embeddings == {"<a>": [1000]}
    same(model.run(input_ids=ids(1000)), before)


def test_a_file_that_is_none(model: graphc.Model, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(b"\0" * 100)
    with pytest.raises(CheckpointError, match=r"x\.pt: it is not a checkpoint"):
        model.load_embeddings({"<a>": tmp_path / "x.pt"})


def test_a_model_without_a_table(tmp_path: Path) -> None:
    from small_models import dense_model

    with pytest.raises(EngineError, match="the model has no table of tokens"):
        graphc.compile(dense_model(), threads=1).load_embeddings({"<a>": vectors(1).numpy()})


def test_a_table_that_is_read_in_another_way() -> None:
    table = {"table": np.ones((9, 4), np.float32), "short": np.ones((7, 4), np.float32)}
    gathers = [node("Gather", ["table", "ids"], ["y"]), node("Gather", ["short", "ids"], ["z"])]
    inputs = [value("ids", [2], np.int64), value("x", [9, 4])]
    rows = {"<a>": np.ones((1, 4), np.float32)}
    read = graphc.compile(
        model_of([gathers[0], node("Add", ["x", "table"], ["z"])], inputs, ["y", "z"], table), threads=1
    )
    with pytest.raises(EngineError, match="table cannot grow: ggml_add reads it too"):
        read.load_embeddings(rows)
    shared = graphc.compile(model_of(gathers, inputs[:1], ["y", "z"], table), threads=1)
    with pytest.raises(EngineError, match="table cannot grow: ids numbers the rows of others too"):
        shared.load_embeddings(rows)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("c++"), reason="needs cmake and a C++ compiler")
def test_a_cpp_program_that_was_compiled_without_them(tmp_path: Path) -> None:
    from graphc.targets.ggml.engine import read_engine, write_engine

    table = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    program = compile_program(model_of([node("Gather", ["table", "ids"], ["y"])], [value("ids", [3], np.int64)], ["y"],
                                       {"table": table}), Settings(name="m"))  # fmt: skip
    graphc.compiler.write(program, tmp_path / "m.gguf")
    binary = build_quickly(graphc.compiler.write_project(program, tmp_path / "cpp"))
    loaded = graphc.load(tmp_path / "m.gguf", threads=1)
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    loaded.load_embeddings({"<a>": rows[:1]})
    loaded.load_embeddings({"<b>": rows[1:]})
    loaded.save(tmp_path / "grown.gguf")
    again = graphc.load(tmp_path / "grown.gguf", threads=1)
    again.load_embeddings({"<c>": rows})
    again.save(tmp_path / "more.gguf")

    def run(engine: str, *numbers: int) -> subprocess.CompletedProcess[str]:
        np.save(tmp_path / "ids.npy", np.array(numbers, np.int64))
        command = [
            binary,
            "--engine",
            tmp_path / engine,
            "--input",
            f"ids={tmp_path / 'ids.npy'}",
            "--output",
            tmp_path,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    for engine, numbers in (("m.gguf", (8, 0, -9)), ("grown.gguf", (10, 9, 0)), ("more.gguf", (12, -13, 11))):
        done = run(engine, *numbers)
        assert done.returncode == 0, done.stderr
        assert np.array_equal(
            np.load(tmp_path / "y.npy"), np.concatenate([table, rows, rows])[: 9 + max(numbers[0] - 8, 0)][[*numbers]]
        )
        high = {"m.gguf": 8, "grown.gguf": 10, "more.gguf": 12}[engine]
        assert f"ids: {high + 1} is not in 0..{high}" in run(engine, high + 1, 0, 0).stderr.replace(" at [0]", "")
    grown, arrays = read_engine(tmp_path / "grown.gguf")
    for wrong in ({"weight": 7}, {"input": 3}, {"rows": 1}):
        grown.growth = replace(grown.growth, **wrong)
        write_engine(tmp_path / "wrong.gguf", grown, arrays.__getitem__)
        assert run("wrong.gguf", 0, 0, 0).returncode == 1
        grown, arrays = read_engine(tmp_path / "grown.gguf")


def test_a_damaged_engine_with_them(tmp_path: Path) -> None:
    table = {"table": np.ones((9, 4), np.float32)}
    model = graphc.compile(
        model_of([node("Gather", ["table", "ids"], ["y"])], [value("ids", [3], np.int64)], ["y"], table)
    )
    model.load_embeddings({"<a>": np.ones((2, 4), np.float32)})
    model.save(tmp_path / "m.gguf")
    metadata, entries, data = read_container(tmp_path / "m.gguf", "graphc")
    for change in ({"graphc.growth.rows": "2"}, {"graphc.growth.rows": None}, {"graphc.growth.more": 1}):
        damaged = {key: each for key, each in {**metadata, **change}.items() if each is not None}
        write_container(tmp_path / "damaged.gguf", damaged, entries, data.__getitem__)
        with pytest.raises(
            EngineError, match=r"damaged\.gguf: it is damaged: it does not say how a table of its program grew"
        ):
            graphc.load(tmp_path / "damaged.gguf")


def test_the_command_line(graphc_command: Any, model: graphc.Model, tmp_path: Path) -> None:
    model.close()
    for name in ("a1111.pt", "diffusers.bin"):
        FILES[name](tmp_path / name, vectors(2, len(name)))
    np.save("ids.npy", ids(1001, 1002, 1003))
    tokens = ("--embedding", "<a>=a1111.pt", "--embedding", "<b>=diffusers.bin")
    run = ("--input", "input_ids=ids.npy", "--threads", "1")
    done = graphc_command("run", "m.gguf", *run, *tokens)
    assert "<a>: 1000, 1001\n<b>: 1002, 1003\n" in done.err
    refitted = graphc_command("refit", "m.gguf", "-o", "grown.gguf", *tokens)
    assert refitted.out == "grown.gguf: the weights of m.gguf, with tokens\n"
    assert "<b>: 1002, 1003" in refitted.err
    assert graphc_command("run", "grown.gguf", *run).out == done.out
    loaded = graphc.load("m.gguf", threads=1)
    loaded.load_embeddings({"<a>": "a1111.pt", "<b>": "diffusers.bin"})
    loaded.save("saved.gguf")
    assert Path("saved.gguf").read_bytes() == Path("grown.gguf").read_bytes()
    torch.save(encoder()[0].state_dict(), "m.pt")
    graphc_command("refit", "m.gguf", "m.pt", "-o", "both.gguf", *tokens)
    assert Path("both.gguf").read_bytes() == Path("grown.gguf").read_bytes()
    for wrong, message in (
        (["<a>"], "must be TOKEN=FILE"),
        (["<a>=x", "--embedding", "<a>=y"], "twice"),
        (["<a>=x"], "x: no such"),
    ):
        done = graphc_command("refit", "m.gguf", "-o", "new.gguf", "--embedding", *wrong)
        assert done.status == 1
        assert message in done.err
    assert (
        "overwrite an embedding"
        in graphc_command("refit", "m.gguf", "-o", "a1111.pt", "--embedding", "<a>=a1111.pt").err
    )


def test_with_loras(exported: Path, tmp_path: Path) -> None:
    graphc.compiler.write(compile_program(exported, Settings(dtype="q8_0")), tmp_path / "m.gguf")
    name = "encoder.layers.0.self_attn.q_proj"
    down, up = vectors(4, 1), vectors(WIDTH, 2, 4)
    lora = {f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up}
    results = []
    for order in ("lora first", "tokens first"):
        model = graphc.load(tmp_path / "m.gguf", threads=1)
        before = model.run(input_ids=ids())
        if order == "lora first":
            model.load_lora(lora, name="l")
        model.load_embeddings({"<a>": vectors(2).numpy()})
        if order == "tokens first":
            model.load_lora(lora, name="l")
        results.append(model.run(input_ids=ids(1000, 1001)))
        model.unload_embeddings()
        model.unload_lora()
        same(model.run(input_ids=ids()), before)
    same(*results)


@pytest.mark.parametrize("name", ["clip_projection", "t5_encoder"])
def test_other_text_encoders(name: str, tmp_path: Path) -> None:
    module, inputs = EXAMPLES[name].build()
    model = graphc.compile(export(EXAMPLES[name], "dynamo", tmp_path), names=module.state_dict(), threads=1)
    rows = vectors(2, width=module.config.hidden_size)
    found = model.load_embeddings({"<a>": rows.numpy()})["<a>"]
    prompt = inputs["input_ids"].numpy().copy()
    prompt[0, 3:5] = found
    close(model.run(input_ids=prompt), expected(with_rows(module, rows), prompt))
