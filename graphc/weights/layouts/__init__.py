"""Checkpoints as people find them: which tensor of theirs is which parameter of a component.

Our names are those of the modules' `state_dict` in diffusers and transformers. Theirs are those of the models' authors, in one
file for all components. Each architecture is a table of patterns (`unet.py`, `transformer.py`, `text.py`), which `table.py`
applies in both directions. No tensor is needed for that: names suffice, and shapes to recognize a checkpoint.

    layout = detect(shapes)                # of a checkpoint: its architecture, its components; None if it is none that is known
    layout.sources(names)["unet"]          # our name -> Source(their name, steps), of every tensor that is there
    source.shape(shape), source.array(a)   # what the steps make of theirs: our shape, our elements (a view where possible)

    fit(tensors, wanted, component)        # in `fit.py`: the component that has what a model wants, under the model's names

    origins(names)                         # the other way, from a model's own names alone: which components have them, and
                                           # our name -> Source(their name without the beginning of its component, steps)

The steps: `Rows(start, stop, parts)`, equal parts of the rows; `SwapHalves()`; `Flat()`, a convolution of 1 x 1 as a matrix;
`Transposed()`; `AsRow()`, a vector as a matrix. A low-rank change `up @ down` of a tensor of theirs becomes one of ours by the
same steps on the rows of `up`.
"""

from graphc.weights.layouts.architectures import ARCHITECTURES, IGNORED, Layout, Origin, detect, origins
from graphc.weights.layouts.table import AsRow, Flat, Row, Rows, Source, Step, SwapHalves, Table, Transposed

__all__ = [
    "ARCHITECTURES", "IGNORED", "AsRow", "Flat", "Layout", "Origin", "Row", "Rows", "Source", "Step", "SwapHalves", "Table",
    "Transposed", "detect", "origins",
]  # fmt: skip
