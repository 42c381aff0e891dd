"""Attention: `softmax(q @ k^T * scale + mask) @ v`, without its matrix of scores where a device can."""

from __future__ import annotations

from graphc.targets.ggml.program.composites.composite import Expansion, composite
from graphc.targets.ggml.program.rules import require
from graphc.targets.ggml.program.tensor import Tensor

PARTS, MADE_OF_EACH = 16, 12
"""Of the queries, whose scores are made one after the other where those of all would be too large (`composites/attention.c`)."""


MOST_OTHERS = 4
"""Masks besides the first."""


@composite(made=2 + 2 * MOST_OTHERS + PARTS * MADE_OF_EACH, ways=("flash", "scores"), multiplied=3)
def attention(
    call: Expansion, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, *others: Tensor
) -> Tensor:
    """`softmax(q @ k^T * scale + mask) @ v`, with the sum of all masks. q is [N, H, M, D], k [N, G, L, D], v [N, G, L, E], with
    contiguous rows of q and k; G divides H, and a head of k and v serves H / G adjacent heads of q. Masks are [.., M, L],
    contiguous. The result has the heads of a query beside one another: [N, M, H, E]."""
    require(not others or mask is not None, "there are other masks, but not the first")
    require(len(others) <= MOST_OTHERS, f"adds {1 + MOST_OTHERS} masks at most")
    for other in others:
        assert mask is not None
        alike = other.ne[:2] == mask.ne[:2] and other.type == mask.type == "F32"
        require(
            alike and other.contiguous and mask.contiguous,
            "masks must be contiguous, F32, with a number for each score",
        )
        sizes = (a if b == 1 else b for a, b in zip(mask.ne, other.ne, strict=True))
        mask = call("ggml_add", call("ggml_repeat_4d", mask, *sizes), other)
    scores = call("ggml_mul_mat", k, q)
    weights = call("ggml_soft_max_ext", scores, mask, scale, 0.0)
    columns = call("ggml_cont", call("ggml_permute", v, 1, 0, 2, 3))
    found = call("ggml_mul_mat", columns, weights)
    return call("ggml_cont", call("ggml_permute", found, 0, 2, 1, 3))
