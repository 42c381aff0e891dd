"""`graphc inspect --weights`: how each stored weight is made from the model's parameters."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from graphc.commands.output import bytes_text, say, say_table

if TYPE_CHECKING:
    from graphc.ir.graph import Value
    from graphc.targets.ggml.program.program import Program, Weight

WITHOUT = "(stored as it is)"


def weights_of(program: Program) -> dict[str, Any]:
    """The recipes as JSON."""
    from graphc.weights.recipes import described, recipes_of

    def made(weight: Weight, recipe: Value) -> str:
        return f"{weight.type_name}({described(recipe)})" if weight.narrow else described(recipe)

    recipes = recipes_of(program)
    return {
        "weights": [
            {
                "name": weight.name,
                "dtype": weight.type_name,
                "shape": list(weight.shape),
                "bytes": weight.nbytes,
                "recipe": None if recipe is None else made(weight, recipe),
                "parameters": [each.parameter for each in read],
            }
            for weight, recipe, read in zip(program.weights, recipes.weights, recipes.reads, strict=True)
        ],
        "pinned": [each.parameter for each in recipes.pinned],
    }


def sizes_text(program: Program) -> str:
    """The bytes of all weights, and of each type if some are narrower than the model says."""
    from graphc.targets.ggml.program.cost import weight_bytes

    sizes = bytes_by_type(program)
    parts = ", ".join(f"{type} {bytes_text(size)}" for type, size in sizes.items())
    narrow = any(weight.narrow for weight in program.weights)
    return bytes_text(weight_bytes(program)) + (f" ({parts})" if narrow else "")


def bytes_by_type(program: Program) -> dict[str, int]:
    """Bytes of the weights of each type, the most first."""
    sizes: Counter[str] = Counter()
    for weight in program.weights:
        sizes[weight.type_name] += weight.nbytes
    return dict(sizes.most_common())


def say_weights(program: Program) -> None:
    """Print a line for each weight, then the pinned parameters."""
    found = weights_of(program)
    rows = [
        (
            bytes_text(each["bytes"]),
            f"{each['dtype']}{each['shape']}",
            each["recipe"] or WITHOUT,
            "" if each["parameters"] == [each["name"]] else each["name"],
        )
        for each in found["weights"]
    ]
    say_table(("size", "type", "recipe", "name in the engine"), rows, "r")
    say()
    made = [each for each in found["weights"] if each["recipe"]]
    names = {name for each in made for name in each["parameters"]}
    rest = sum(each["bytes"] for each in found["weights"] if not each["recipe"])
    say(f"{len(made)} of {len(rows)} weights are made of {len(names)} parameters; the others have {bytes_text(rest)}")
    if found["pinned"]:
        say("pinned, because the program relies on their numbers:")
        for name in found["pinned"]:
            say(f"  {name}")
