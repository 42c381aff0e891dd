"""`graphc inspect --weights`: how each stored weight is made from the model's parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphc.commands.output import bytes_text, say, say_table

if TYPE_CHECKING:
    from graphc.targets.ggml.program import Program

WITHOUT = "(stored as it is)"


def weights_of(program: Program) -> dict[str, Any]:
    """The recipes as JSON."""
    from graphc.weights.recipes import described, recipes_of

    recipes = recipes_of(program)
    return {
        "weights": [
            {
                "name": weight.name,
                "dtype": weight.type_name,
                "shape": list(weight.shape),
                "bytes": weight.nbytes,
                "recipe": None if recipe is None else described(recipe),
                "parameters": [each.parameter for each in read],
            }
            for weight, recipe, read in zip(program.weights, recipes.weights, recipes.reads, strict=True)
        ],
        "pinned": [each.parameter for each in recipes.pinned],
    }


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
