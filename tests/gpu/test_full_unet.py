"""The U-Net and the decoder of Stable Diffusion 1.5 at full size, as they would run on GPUs that are not here. The U-Net's
weights are holes in a file: nothing of them is looked at."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from graphc.compiler import Settings, compile_program
from graphc.kernels.gpu.devices import GPUS
from graphc.kernels.gpu.scheduling import Scheduling
from graphc.shapes import integer
from graphc.targets.ggml.engine import read_stripped_engine
from graphc.targets.ggml.generate.generate import generated
from graphc.targets.ggml.generate.simulate import Simulated, simulated
from graphc.targets.ggml.program.program import Program
from graphc_images.models.model import ENGINES

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

SIZES = {"batch": 2, "height": 64, "width": 64, "tokens": 77}


def exported(folder: Path) -> Path:
    """The model, exported without its weights."""
    import onnx_ir
    from torch._subclasses.fake_tensor import FakeTensorMode
    from zoo.build import built
    from zoo.diffusion import SD15_UNET, UNET_AXES

    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = {
            "sample": torch.randn(2, 4, 64, 64),
            "timestep": torch.tensor([601]),
            "encoder_hidden_states": torch.randn(2, 77, 768),
        }
        module, inputs = built(
            diffusers.UNet2DConditionModel(**SD15_UNET).eval().requires_grad_(False), inputs, "sample"
        )
        shapes = (tuple(dict(UNET_AXES.get(name, {})) for name in inputs),)
        program = torch.onnx.export(
            module, tuple(inputs.values()), input_names=list(inputs), output_names=["out_sample"], opset_version=20,
            dynamo=True, verbose=False, optimize=False, dynamic_shapes=shapes,
        )  # fmt: skip
    end = 0
    for name, value in program.model.graph.initializers.items():
        tensor = value.const_value
        if isinstance(tensor.raw, torch._subclasses.fake_tensor.FakeTensor):
            shape, nbytes = onnx_ir.Shape(list(tensor.shape)), tensor.nbytes
            value.const_value = onnx_ir.ExternalTensor(
                "weights", end, nbytes, tensor.dtype, shape=shape, name=name, base_dir=str(folder)
            )
            end += -(-nbytes // 4096) * 4096
    with (folder / "weights").open("wb") as file:
        file.truncate(end)
    (folder / "model.onnx").write_bytes(onnx_ir.to_proto(program.model).SerializeToString())
    return folder / "model.onnx"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return compile_program(exported(tmp_path_factory.mktemp("unet")), Settings())


def on(name: str, program: Program, fast: bool = True, steady: Sequence[str] = ("encoder_hidden_states",)) -> Simulated:
    """A step on a GPU, with the words of the step before."""
    gpu = GPUS[name]
    return simulated(generated(program, fast, Scheduling.of(gpu)), SIZES, gpu, steady=steady)


@pytest.mark.slow
def test_a_step_takes_what_it_should(program: Program) -> None:
    """1.61 TFLOP in products. The best that was published for a step of both halves, 512 x 512: 18 ms on an A100 and 15 ms on an
    RTX 4090 (`chengzeyi/stable-fast`), PyTorch's own 31 and 40; nothing is faster than tensor cores and memory allow."""
    found = on("h200", program)
    assert 1.5e12 < sum(each.operations for each in found.steps) < 2.2e12
    assert len(found.steps) <= 366, "of larger images, norms are two launches"
    assert sum(each.nbytes for each in found.steps) < 4.4e9
    moved = sum(each.nbytes for each in found.steps if each.kernel.startswith("pointwise"))
    assert moved < 2e6, "nothing is brought into another order but the picture, the words and the result"
    assert not found.on_cpu
    assert not found.unknown
    assert 1.6e9 < found.weight_bytes < 1.8e9
    assert 4e-3 < found.seconds < 20e-3


@pytest.mark.slow
def test_words_are_read_once_for_all_steps(program: Program) -> None:
    """Keys and values of 16 layers are what there is to keep: 8 products to a launch, and one that packs the words."""
    step, first = on("h200", program), on("h200", program, steady=())
    assert len(first.steps) - len(step.steps) == 5
    kept = sum(each.nbytes for each in first.steps) - sum(each.nbytes for each in step.steps)
    weights = 2 * 2 * 768 * (5 * 320 + 5 * 640 + 6 * 1280)
    assert weights < kept < 1.5 * weights


def stored(name: str, folder: Path) -> Program:
    """The program of an engine that pictures are made with."""
    engine = folder / "engine.gguf"
    engine.write_bytes(gzip.decompress((ENGINES / f"{name}.gguf.gz").read_bytes()))
    return read_stripped_engine(engine)[0]


@pytest.mark.slow
def test_a_decoder_takes_what_it_should(tmp_path: Path) -> None:
    """To 512 x 512 pixels. At its peak there are an image that a norm read and a shortcut will, what the norm gave, and what a
    convolution makes of that: the two largest results, and one of half their size."""
    gpu, sizes = GPUS["h200"], {"batch": 1, "height": 64, "width": 64}
    made = generated(stored("vae4_decoder", tmp_path), True, Scheduling.of(gpu))
    found = simulated(made, sizes, gpu)
    results = sorted(integer(call.result.nbytes, sizes) for call in made.program.calls)
    assert results[-2:] == [2 * 512 * 512 * 256] * 2
    assert found.result_bytes is not None
    assert found.result_bytes < 1.26 * sum(results[-2:])
    assert len(found.steps) <= 129
    assert sum(each.nbytes for each in found.steps) < 6.1e9
    # 2.5e12 if images were made larger before convolutions
    assert sum(each.operations for each in found.steps) < 2.2e12
    assert not found.on_cpu


@pytest.mark.slow
def test_a_step_of_sdxl_takes_what_it_should(tmp_path: Path) -> None:
    """Two latents of 128 x 128."""
    gpu, sizes = GPUS["h200"], {"batch": 2, "height": 128, "width": 128, "tokens": 77}
    program = stored("unet_sdxl", tmp_path)
    words = ("encoder_hidden_states", "text_embeds", "time_ids")
    found = simulated(generated(program, True, Scheduling.of(gpu)), sizes, gpu, steady=words)
    assert len(found.steps) <= 950
    assert sum(each.nbytes for each in found.steps) < 25e9
    assert not found.on_cpu
    assert not found.unknown


@pytest.mark.thorough
def test_a_step_on_other_gpus_and_of_float32(program: Program) -> None:
    assert 12e-3 < on("rtx4090", program).seconds < 45e-3
    assert 20e-3 < on("h200", program, fast=False).seconds < 120e-3
