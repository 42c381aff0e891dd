"""The models on which the compiler is tried: published architectures with seeded weights.

A family's file builds its models when asked and imports diffusers or transformers only then,
so the zoo itself needs nothing but torch.
"""

from zoo import audio, basic, diffusion, text, vision
from zoo.example import EXPORTERS, Example, Exporter

EXAMPLES: dict[str, Example] = {
    value.name: value
    for family in (basic, diffusion, text, vision, audio)
    for value in vars(family).values()
    if isinstance(value, Example)
}

__all__ = ["EXAMPLES", "EXPORTERS", "Example", "Exporter"]
