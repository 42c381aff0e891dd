"""Parts of networks that an input switches off, for guidance away from a weakened model.

The inputs have a number for each row of the batch. Where it has its usual value, the network gives the same bits as without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

GATES = {2: (1,), 5: (1, 4), 7: (1, 4, 6)}
"""By the number of what a block's norm gives: which of it scale what the block adds to its rows."""


@dataclass
class Switch:
    """An input of a network that is read in its midst."""

    rows: Tensor | None = None


def thrown(module: nn.Module, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Give the first of some inputs to the network's switch, if it has one; the others come back."""
    switch = module.__dict__.get("switch")
    if switch is None:
        return inputs
    switch.rows, *others = inputs
    return others


class Perturbed:
    """Self-attention of diffusers that gives its values as they are, in rows of a switch [batch] that are 1.

    Ahn et al., Perturbed-Attention Guidance (2024). Where it is 0, attention is as ever.
    """

    def __init__(self, switch: Switch) -> None:
        self.switch = switch

    def __call__(self, attention: Any, hidden: Tensor, *_: object, **__: object) -> Tensor:
        """The output [batch, tokens, width]."""
        values = attention.to_v(hidden)
        heads = [
            each.unflatten(2, (attention.heads, -1)).transpose(1, 2)
            for each in (attention.to_q(hidden), attention.to_k(hidden), values)
        ]
        found = scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        assert self.switch.rows is not None
        share = self.switch.rows[:, None, None]
        return attention.to_out[0](found * (1 - share) + values * share)


def perturbable(unet: Any) -> None:
    """Have a switch perturb the self-attention of a U-Net's middle block, if there is any."""
    middle = [block for each in getattr(unet.mid_block, "attentions", ()) for block in each.transformer_blocks]
    if middle:
        unet.__dict__["switch"] = switch = Switch()
    for block in middle:
        block.attn1.set_processor(Perturbed(switch))


def skippable(module: nn.Module, *stacks: Sequence[nn.Module]) -> None:
    """Have blocks of a transformer add nothing in rows for which a switch [batch, blocks] is 0; it is 1 as ever.

    Blocks are counted through all stacks.
    """
    module.__dict__["switch"] = switch = Switch()
    for number, block in enumerate(block for stack in stacks for block in stack):
        for name, norm in block.named_children():
            if name in ("norm", "norm1", "norm1_context"):
                _gated(switch, number, norm)


def _gated(switch: Switch, number: int, norm: nn.Module) -> None:
    """Scale the gates among what a norm gives, if it gives any."""
    own = norm.forward

    def forward(*given: Any, **named: Any) -> Any:
        found = own(*given, **named)
        if not isinstance(found, tuple):
            return found
        assert switch.rows is not None
        kept, gates = switch.rows[:, number, None], GATES[len(found)]
        return tuple(each * kept if place in gates else each for place, each in enumerate(found))

    norm.__dict__["forward"] = forward
