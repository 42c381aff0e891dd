"""Writes `docs/operators.md` from the code.

    python docs/generate.py

What the page says is seen, not told: each core operator is lowered in a typical use (`uses.py`) for every dtype, and ONNX's
own tests of each of its operators are imported.
"""

from __future__ import annotations

import sys
from pathlib import Path

import core_operators
import onnx
import onnx_operators

PAGE = Path(__file__).with_name("operators.md")

TEXT = """\
# Operators

Made by `python docs/generate.py` with onnx {onnx}; do not edit.

- [How core operators are computed](#core-operators)
- [ONNX's operators](#onnxs-operators)

## Core operators

A model becomes a graph of core operators (`graphc/ops`). Each has a NumPy form (`eval`), which is the reference and folds
constants. On ggml it is computed in the first of four ways that works for its dtypes and sizes:

1. **ggml calls** (`to_ggml`). "no call" is a view of the same memory, or nothing at all.
2. **by** smaller operators (`define`), which are computed in one of these four ways in turn. "in float32" is the same
   operator between two casts.
3. **routine**: hand-written C (`routine`), for what goes through an axis from one end to the other. It runs on the CPU;
   ggml's scheduler moves the data where the rest of the graph runs on another device.
4. **kernel**: a loop in C, generated from the operator's formula for one element (`element`). It runs on the CPU too.

Branches, loops and sizes that only a run can tell (`graphc/ops/control.py`) are the host's work between two graphs of ggml.

The column "for" says for which dtypes there are ggml calls; casts to and from float32 are left out of the calls. A dtype
that no column names is one that the operator does not take; "narrow" are those of a byte and less (float8, float4, int4, …),
which only lie in memory and are converted. The sizes are those of a typical use (`docs/uses.py`); ggml's
limits (four axes, contiguous rows) can lead to the next way, never to another result.

{core}
## ONNX's operators

Every operator of the domain `ai.onnx` of the installed onnx, as ONNX's own tests use it. "Versions" are the opsets that
changed it: an importer knows every spelling from opset {oldest} to {newest}. "Becomes" are core operators, the most frequent
first; "no node" means that only sizes or names change, or that the result is computed while compiling. It is empty where
ONNX has no test of the operator alone.

† In a test of ONNX's, an input is open that the compiler must know (a shape, axes, a number of steps). `graphc compile`
refuses such a model, with the reason; `graphc.onnx_backend` compiles it for the values of a run. Exported models have
constants there.

{onnx_rows}

## onnxruntime's operators

What onnxruntime's optimizers and quantizers, Optimum and Olive put into files: the domain `com.microsoft`, and
`com.microsoft.nchwc` ("nchwc" below), images in blocks of channels, which the optimizer writes at its full level. Tests compare
each with onnxruntime on drawn inputs; what onnxruntime has for GPUs alone, with the formula of its schema. Whole files as tools
leave them are in `tests/test_tools.py`: BERT, GPT-2, ViT, CLIP, a VAE, T5's and Whisper's encoders and Llama after the optimizer
of transformers, after sessions at each level, in float16 and after the quantizers; U-Net, Qwen3, SD3 and Swin too in the thorough
tests.
Experts of a mixture are all computed, whichever are chosen.

{onnxruntime_rows}

## Classical machine learning

The domain `ai.onnx.ml`, which skl2onnx and its relatives write. Tests compare each operator with onnxruntime. Labels have to be
numbers, and `ZipMap`'s maps have to be left out (`options={{'zipmap': False}}`). `tests/test_sklearn.py` has scikit-learn's
models.

{learning_rows}

Other domains: {others}.
"""


def page() -> str:
    """The whole page."""
    core = "\n".join(
        f"### {title}\n\n{core_operators.HEAD}\n" + "\n".join(rows) + "\n" for title, rows in core_operators.tables()
    )
    return TEXT.format(
        onnx=onnx.__version__,
        core=core,
        oldest=onnx_operators.OLDEST_OPSET,
        newest=onnx.defs.onnx_opset_version(),
        onnx_rows="\n".join([onnx_operators.HEAD, *onnx_operators.rows()]),
        onnxruntime_rows="\n".join([onnx_operators.ONNXRUNTIME_HEAD, *onnx_operators.onnxruntime_rows()]),
        learning_rows="\n".join([onnx_operators.ONNXRUNTIME_HEAD, *onnx_operators.learning_rows()]),
        others=", ".join(
            f"`{domain}.{name}`"
            for domain, name in sorted(onnx_operators.IMPORTERS)
            if domain and domain != onnx_operators.LEARNING and not domain.startswith(onnx_operators.MICROSOFT)
        ),
    )


def main() -> None:
    """Write the page, and say which reasons of `onnx_operators.NOT_YET` are not true any more."""
    PAGE.write_text(page(), encoding="utf-8")
    if stale := onnx_operators.stale():
        sys.exit(f"docs/onnx_operators.py: these have an importer and a reason why not: {', '.join(stale)}")


if __name__ == "__main__":
    main()
