"""What a step of the inner loop of products, convolutions and attention issues, as the assembler wrote it: no device is needed.

    pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm
    python benchmarks/instructions.py sm_80 sm_90

Multiprocessors issue an instruction per scheduler and cycle, whatever it does: what is no product, copy or sum of a step costs as
much as these. What a branch may pass over is not counted: the last keys, and what is done when the largest score of a row rises.
nvdisasm is found on the PATH, or by `--nvdisasm`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from graphc.ir.types import F16
from graphc.kernels.gpu.assemble import assembled
from graphc.kernels.gpu.code import target_for
from graphc.kernels.gpu.compile import compile_ptx, find_tool
from graphc.kernels.gpu.forms import Text
from graphc.kernels.gpu.schedule import parsed
from graphc.kernels.gpu.skeletons.attention import Attention, attention
from graphc.kernels.gpu.skeletons.attention_together import INSTRUCTION as TOGETHER
from graphc.kernels.gpu.skeletons.attention_together import attention_together
from graphc.kernels.gpu.skeletons.contraction import Contraction, contraction
from graphc.kernels.gpu.skeletons.operands import Window, images, kernels, matrix
from graphc.kernels.gpu.tile import TileKernel
from graphc.kernels.scalar import Scalar
from graphc.shapes import symbol

CHANNELS = 320
PRODUCTS = "m128n128k32 w64x32 s4 z1 m16n8k16_half", "m128n128k64 w64x64 s3 z1 m16n8k16_half"
PRODUCTS_TOGETHER = "m128n160k64 w16x160 s4 z1 wgmma_half", "m128n256k64 w16x256 s4 z1 wgmma_half"
WIDTHS = 40, 64, 128
"""Of heads."""

LABEL = re.compile(r"^(\.L_x_\d+):")
INSTRUCTION = re.compile(r"^\s+(?:/\*[0-9a-f]+\*/)?\s*(?:@!?U?P\w+ )?\s*([A-Z0-9_]+)([^;]*);")


def product() -> Contraction:
    """Rows of any number by a matrix."""
    rows = symbol("rows")

    def place(batch: Scalar, row: Scalar, column: Scalar) -> Scalar:
        return row * CHANNELS + column

    a, b = matrix(F16, rows, CHANNELS), matrix(F16, CHANNELS, CHANNELS)
    return Contraction("product", rows, CHANNELS, CHANNELS, a, b, F16, rows * CHANNELS, place)


def convolution() -> Contraction:
    """A convolution of 3 x 3 of images of any size."""
    count, height, width = symbol("count"), symbol("height"), symbol("width")
    rows = count * height * width

    def place(batch: Scalar, row: Scalar, column: Scalar) -> Scalar:
        return row * CHANNELS + column

    a = images(F16, count, Window(height, 3, height, 1, 1), Window(width, 3, width, 1, 1), CHANNELS)
    b = kernels(F16, CHANNELS, 9, CHANNELS)
    return Contraction("convolution", rows, CHANNELS, CHANNELS, a, b, F16, rows * CHANNELS, place, taps=9)


def heads(width: int) -> Attention:
    """Heads of any number of queries and keys."""
    rows, keys, count = symbol("rows"), symbol("keys"), 8
    q, k = matrix(F16, rows, width, count), matrix(F16, keys, width, count)
    size = count * rows * width
    return Attention("attention", count, rows, keys, width, width, width**-0.5, q, k, k, size, F16, q.offset)


def kernels_for(together: bool) -> Iterator[tuple[str, TileKernel]]:
    """The kernels, and what they are called here."""
    for schedule in PRODUCTS_TOGETHER if together else PRODUCTS:
        for what in (product(), convolution()):
            yield f"{what.name} {schedule}", contraction(what, parsed(schedule))
    for width in WIDTHS:
        yield f"attention {width}", (attention_together if together else attention)(heads(width))


def longest_loop(listing: str) -> list[str]:
    """The instructions of the longest loop, without those that a branch may pass over."""
    places, kinds, branches = dict[str, int](), list[str](), list[tuple[int, str]]()
    for line in listing.splitlines():
        if label := LABEL.match(line):
            places[label[1]] = len(kinds)
        elif written := INSTRUCTION.match(line):
            kinds.append(written[1])
            target = re.search(r"\.L_x_\d+", written[2])
            branches += [(len(kinds), target[0])] if written[1] == "BRA" and target else []
    reached = [(behind, places[target]) for behind, target in branches]
    end, begin = max(reached, key=lambda each: each[0] - each[1])
    passed = {at for behind, target in reached if begin < behind < target <= end for at in range(behind, target)}
    return [kinds[at] for at in range(begin, end) if at not in passed]


def main() -> None:
    """Print a line for each kernel."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("architectures", nargs="+", help="sm_80, sm_86, sm_89, sm_90, ...")
    parser.add_argument("--nvdisasm", type=Path, default=find_tool("nvdisasm"))
    given = parser.parse_args()
    if given.nvdisasm is None:
        sys.exit("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm, and give its path with --nvdisasm")
    for architecture in given.architectures:
        form = Text("cuda0", architecture)
        for name, kernel in kernels_for(form.has(TOGETHER)):
            ((text, _),) = form.files([form.render(kernel)], 1)
            target = target_for(architecture, text)
            code = assembled(compile_ptx(text, target), target)
            if code is None:
                sys.exit("ptxas is not installed: pip install nvidia-cuda-nvcc")
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "kernel.cubin").write_bytes(code)
                command = [given.nvdisasm, "-c", Path(folder, "kernel.cubin")]
                listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            loop = longest_loop(listing)
            kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(loop).most_common())
            print(f"{architecture} {name}: {len(loop)} ({kinds})")


if __name__ == "__main__":
    main()
