"""Which component of a checkpoint a model is, and its tensors under the model's names."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from graphc.errors import CheckpointError
from graphc.weights.formats.tensors import Tensors, Unreadable
from graphc.weights.layouts.architectures import ARCHITECTURES, IGNORED, Layout, Shapes, detect, origins, spellings
from graphc.weights.layouts.table import SAME, Array, Source, modules

AS_IT_IS = Layout("", {"": (SAME, "")})
"""A checkpoint that is taken by the names that it has."""


def shapes_of(given: Tensors) -> Shapes:
    """What the layout of a checkpoint is told by."""
    return {name: None if isinstance(each, Unreadable) else tuple(each.shape) for name, each in given.items()}


@dataclass(frozen=True)
class Fit:
    """A component as a model names it: where each tensor is from, and what a checkpoint has more than the model."""

    layout: Layout
    component: str
    sources: Mapping[str, Source]
    surplus: list[str]

    def __str__(self) -> str:
        return f"the checkpoint ({self.layout.name}: {self.component})" if self.component else "the checkpoint"

    def tensors(self, given: Tensors, names: Container[str] | None = None) -> Tensors:
        """The component's tensors (or those of these names) as the model names them: views, where that is possible."""
        return {
            name: _made(source, given[source.name])
            for name, source in self.sources.items()
            if names is None or name in names
        }


def fit(given: Tensors, wanted: Shapes, component: str | None = None) -> Fit:
    """The component that has the most of the parameters that a model wants, by names and shapes.

    Where no component has more than the checkpoint as it is, by its own names, it is taken so. With `component`, no other is
    looked at. Raises CheckpointError if it is not there, if two fit as well, or if the layout is known and nothing in it has even
    half of what is wanted.
    """
    shapes = shapes_of(given)
    known = detect(shapes) or _plain(shapes, component)
    if component is not None and (known is None or component not in known.parts):
        has = (
            f"it is a {known.name} checkpoint with {', '.join(known.parts)}"
            if known
            else "it is in no layout that is known"
        )
        raise CheckpointError(f"the checkpoint has no component {component!r}: {has}")
    tried = [(known, each) for each in ([component] if component else known.parts)] if known else []
    tried += [(AS_IT_IS, "")] if component is None else []
    found = [_fit(layout, each, shapes, wanted) for layout, each in tried]
    best = max(count for count, _ in found)
    first, *others = [each for count, each in found if count == best]
    alike = [each.component for each in (first, *others) if each.component]
    if known and wanted and component is None and (not best or (first.component and 2 * best < len(wanted))):
        raise CheckpointError(
            f"it is a {known.name} checkpoint ({', '.join(known.parts)}), and nothing in it is the model: of the model's "
            f"{len(wanted)} parameters ({some(list(wanted))}) it has {best} at most"
        )
    if len(alike) > 1:
        raise CheckpointError(
            f"{' and '.join(alike)} of the checkpoint fit the model alike; say which component to take"
        )
    return first


def _plain(shapes: Shapes, component: str | None) -> Layout | None:
    """The layout of a component's own file, under our names, if it is the one that is asked for."""
    names = [name for name in shapes if not IGNORED.match(name)]
    there = component and any(
        each.component == component and len(each.sources) == len(names) for each in origins(names)
    )
    return Layout("names of diffusers", {component: (SAME, "")}) if component and there else None


KNOWN = ", ".join(each.name for each in ARCHITECTURES)


def some(names: Sequence[str]) -> str:
    """The first of several names."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "") if names else "none"


def _fit(layout: Layout, component: str, shapes: Shapes, wanted: Shapes) -> tuple[int, Fit]:
    """A component in the spelling that fits best, and how many parameters have the right shape."""
    images = layout.images(component, shapes)
    ours = dict(reversed(images))

    def right(cut: str, put: str) -> tuple[int, int]:
        there = {name: ours.get(put + name.removeprefix(cut)) for name in wanted}
        fitting = [_fits(source, shapes, wanted[name]) for name, source in there.items() if source is not None]
        return sum(fitting), len(fitting)

    cut, put = max(spellings(wanted), key=lambda each: right(*each)) if wanted else ("", "")
    sources = {cut + name.removeprefix(put): source for name, source in ours.items()}
    used = {source.name for name, source in images if cut + name.removeprefix(put) in wanted}
    table = layout.parts[component][0]
    used |= _lacking(
        modules((*table.idle, *table.spare), ours), images, {put + name.removeprefix(cut) for name in wanted}
    )
    surplus = [name for name in layout.names(component, shapes) if name not in used and not IGNORED.match(name)]
    return right(cut, put)[0], Fit(layout, component, sources, surplus)


def _lacking(optional: Sequence[str], images: list[tuple[str, Source]], wanted: set[str]) -> set[str]:
    """What belongs to some of these modules, which the model may lack as a whole, and does."""
    expression = re.compile("|".join(rf"{each}\." for each in optional) or r"\b\B")
    groups = {found[0] for name in wanted if (found := expression.match(name))}
    return {source.name for name, source in images if (found := expression.match(name)) and found[0] not in groups}


def _made(source: Source, tensor: Array | Unreadable) -> Array | Unreadable:
    if isinstance(tensor, Unreadable):
        return tensor
    try:
        source.shape(tensor.shape)
    except ValueError as error:
        return Unreadable(f"{source.name}: {error}")
    return source.array(tensor)


def _fits(source: Source, shapes: Shapes, wanted: tuple[int, ...] | None) -> bool:
    """True if a tensor has a shape, or may have it: of one that cannot be read, it is said later why."""
    shape = shapes[source.name]
    try:
        return shape is None or source.shape(shape) == wanted
    except ValueError:
        return False
