"""What captions mean: the text encoder learns it first, from words alone, so that the U-Net finds it there."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from examples.shapes.networks import averages, build_text_encoder, tokens_of
from examples.shapes.scenes import BACKGROUNDS, COLOURS, NUMBERS, PLACES, RELATIONS, SHAPES, SIZES, Scene, scenes
from examples.shapes.training import Stage

BATCH = 64
ROLES = ("first", "second", "left", "right", "upper", "lower")
"""What a thing may be: by its place in the caption, or in the picture as far as that is said. Words that come behind the first
thing tell where it is, and CLIP's tokens look back alone: that thing's own do not know it. A U-Net whose text encoder was not
asked goes on painting both things in both places for a long time."""
LOOKS = {"colour": tuple(COLOURS), "shape": SHAPES, "size": tuple(SIZES)}
WHOLE = {
    "relation": len(RELATIONS) + 1,
    "place": len(PLACES),
    "number": len(NUMBERS) + 2,
    "background": len(BACKGROUNDS) + 1,
}
"""What is asked about the thing of each role, with what it may be but not said, and about a caption, with how many answers there
are; the last of most is that it is not said."""


def answers_of(scene: Scene) -> list[int]:
    """The numbers of the right answers: to each of `LOOKS` for each role, and to `WHOLE`."""
    said = scene.caption.removesuffix(f" on a {scene.background} background")
    relation = next((name for name in RELATIONS if f" {name} " in said), "")
    alike = len(scene.things) > 1 and len({thing.name for thing in scene.things}) == 1
    first, second = (*scene.things[: 1 if alike else 2], None)[:2]
    swapped = relation in ("right of", "below")
    before, behind = (second, first) if swapped else (first, second)
    across, down = RELATIONS.get(relation, (0, 0))
    things = (
        first,
        second,
        *((before, behind) if across else (None, None)),
        *((before, behind) if down else (None, None)),
    )
    found = []
    for thing in things:
        for what, choices in LOOKS.items():
            found.append(len(choices) if thing is None else choices.index(getattr(thing, what)))
    found.append(list(RELATIONS).index(relation) if relation else len(RELATIONS))
    found.append(next((at for at, place in enumerate(PLACES) if place and said.endswith(place)), 0))
    found.append(len(scene.things))
    found.append(list(BACKGROUNDS).index(scene.background) if said != scene.caption else len(BACKGROUNDS))
    return found


class Questions(nn.Module):
    """Asks the text encoder's states [batch, tokens, width] each question; its answers are scores [batch, choices]. It looks at
    them once for each role, as a place of the U-Net does, and sees in the same way there whatever the role is."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.questions = nn.Parameter(torch.randn(len(ROLES) + len(WHOLE), width))
        self.look = nn.MultiheadAttention(width, 4, batch_first=True)
        self.looks = nn.ModuleList(nn.Linear(width, len(choices) + 1) for choices in LOOKS.values())
        self.whole = nn.ModuleList(nn.Linear(width, count) for count in WHOLE.values())

    def forward(self, states: Tensor) -> list[Tensor]:
        """Scores of all answers to each question."""
        seen, _ = self.look(self.questions.expand(len(states), -1, -1), states, states, need_weights=False)
        roles = [answer(seen[:, role]) for role in range(len(ROLES)) for answer in self.looks]
        return roles + [answer(seen[:, len(ROLES) + at]) for at, answer in enumerate(self.whole)]

    def error(self, states: Tensor, right: Tensor) -> Tensor:
        """How wrong the answers are; `right` [batch, questions] are the numbers of the right ones."""
        scores = zip(self(states), right.T, strict=True)
        return torch.stack([nn.functional.cross_entropy(mine.float(), wanted) for mine, wanted in scores]).sum()


def train_words(directory: Path, steps: int) -> None:
    """Learn to answer what a caption says: which things, where, how many. A text encoder that was read learns on."""
    text = build_text_encoder()
    if (directory / "denoiser.pt").exists():
        text.load_state_dict(averages(directory / "denoiser.pt", "text"))
    modules = nn.ModuleDict({"text": text, "questions": Questions(text.config.hidden_size)})
    stage = Stage(directory / "words.pt", modules, 2e-3, steps)
    drawn = scenes(5)

    def loss(step: int) -> Tensor:
        torch.manual_seed(step)
        batch = [next(drawn) for _ in range(BATCH)]
        right = torch.tensor([answers_of(each) for each in batch])
        words = torch.tensor([tokens_of(each.caption) for each in batch])
        return modules["questions"].error(
            modules["text"](words[:, :24] if step % 4 else words).last_hidden_state, right
        )

    stage.train(loss)
