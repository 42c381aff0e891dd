"""What is added to the weights of a model: LoRAs, and tokens of textual inversion. A model to which nothing is added starts
without this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphc.targets.ggml.program.program import Program
from graphc.weights.embeddings import Embeddings
from graphc.weights.formats.tensors import Tensors
from graphc.weights.lora.apply import Loras
from graphc.weights.lora.beside import with_factors
from graphc.weights.undo import Base


@dataclass(frozen=True)
class Added:
    """LoRAs and tokens on the weights of a program. It is not changed: what is loaded or unloaded makes another."""

    loras: Loras
    embeddings: Embeddings

    def program(self) -> Program:
        """The program that they take."""
        return with_factors(self.embeddings.grown(), self.loras.ranks)

    def is_other_program(self, before: Added) -> bool:
        """True if the program is not the one of `before`."""
        return self.embeddings is not before.embeddings or self.loras.ranks != before.loras.ranks

    def weight(self, index: int, before: Added, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """A weight; the array that `before` has for it, if it stays the same."""
        grown = self.embeddings is not before.embeddings
        if (
            self.loras.base is before.loras.base
            and not self.loras.differs(before.loras, index)
            and not (grown and index == self.embeddings.table)
        ):
            return arrays[index]
        return self.embeddings.array(index, self.loras.weight(index))


def nothing(program: Program, weight: Callable[[int], np.ndarray], given: Tensors | None) -> Added:
    """Nothing yet, on these weights; of the parameters that they are made of, those that are known are `given`."""
    return Added(Loras(Base(program, weight, given)), Embeddings(program))
