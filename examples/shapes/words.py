"""What captions mean: the text encoder learns it first, from words alone, so that the U-Net finds it there."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from examples.shapes.networks import build_text_encoder, tokens_of
from examples.shapes.scenes import BACKGROUNDS, COLOURS, NUMBERS, PLACES, RELATIONS, SHAPES, SIZES, Scene, scenes
from examples.shapes.training import Stage

BATCH = 64
THINGS = 2
ANSWERS = {
    **{f"{what} of thing {number}": len(choices) + 1 for number in range(THINGS)
       for what, choices in (("colour", COLOURS), ("shape", SHAPES), ("size", SIZES))},
    "relation": len(RELATIONS) + 1, "place": len(PLACES), "number": len(NUMBERS) + 2, "background": len(BACKGROUNDS) + 1,
}  # fmt: skip
"""What is asked about a caption, and how many answers there are; the last of most is that it is not said."""


def answers_of(scene: Scene) -> list[int]:
    """The numbers of the right answers, in the order of `ANSWERS`."""
    said = scene.caption.removesuffix(f" on a {scene.background} background")
    alike = len(scene.things) > 1 and len({thing.name for thing in scene.things}) == 1
    named = scene.things[: 1 if alike else THINGS]
    found = []
    for number in range(THINGS):
        thing = named[number] if number < len(named) else None
        for what, choices in (("colour", COLOURS), ("shape", SHAPES), ("size", SIZES)):
            found.append(len(choices) if thing is None else list(choices).index(getattr(thing, what)))
    found.append(next((at for at, relation in enumerate(RELATIONS) if f" {relation} " in said), len(RELATIONS)))
    found.append(next((at for at, place in enumerate(PLACES) if place and said.endswith(place)), 0))
    found.append(len(scene.things))
    found.append(list(BACKGROUNDS).index(scene.background) if said != scene.caption else len(BACKGROUNDS))
    return found


class Questions(nn.Module):
    """Asks the text encoder's states [batch, tokens, width] each question; its answers are scores [batch, choices]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.questions = nn.Parameter(torch.randn(len(ANSWERS), width))
        self.look = nn.MultiheadAttention(width, 4, batch_first=True)
        self.answers = nn.ModuleList(nn.Linear(width, count) for count in ANSWERS.values())

    def forward(self, states: Tensor) -> list[Tensor]:
        """Scores of all answers to each question."""
        seen, _ = self.look(self.questions.expand(len(states), -1, -1), states, states, need_weights=False)
        return [answer(seen[:, at]) for at, answer in enumerate(self.answers)]


def train_words(directory: Path, steps: int) -> None:
    """Learn to answer what a caption says: which things, where, how many."""
    text = build_text_encoder()
    modules = nn.ModuleDict({"text": text, "questions": Questions(text.config.hidden_size)})
    stage = Stage(directory / "words.pt", modules, 2e-3, steps)
    drawn = scenes(5)

    def loss(step: int) -> Tensor:
        torch.manual_seed(step)
        batch = [next(drawn) for _ in range(BATCH)]
        right = torch.tensor([answers_of(each) for each in batch]).T
        words = torch.tensor([tokens_of(each.caption) for each in batch])
        found = modules["questions"](modules["text"](words[:, :24] if step % 4 else words).last_hidden_state)
        return sum(nn.functional.cross_entropy(mine.float(), wanted) for mine, wanted in zip(found, right, strict=True))

    stage.train(loss)
