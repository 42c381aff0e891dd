"""Engines that are loaded when they are needed, and freed when another would not fit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import graphc


class Loaded:
    """Engines by key, with one limit in bytes for their weights; None for no limit. The least recently used one goes first."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._models: OrderedDict[object, tuple[graphc.Model, int]] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Bytes of the weights of all that are loaded, whether they are mapped or copied."""
        return sum(size for _, size in self._models.values())

    def get(self, key: object, size: int, load: Callable[[], graphc.Model]) -> graphc.Model:
        """The engine of a key, loaded if it is not; it takes about `size` bytes."""
        if key in self._models:
            self._models.move_to_end(key)
            return self._models[key][0]
        while self.limit is not None and self._models and self.nbytes + size > self.limit:
            self.free(next(iter(self._models)))
        model = load()
        self._models[key] = model, size
        return model

    def there(self, key: object) -> graphc.Model | None:
        """The engine of a key if it is loaded."""
        found = self._models.get(key)
        return None if found is None else found[0]

    def free(self, key: object) -> None:
        """Close the engine of a key, if it is loaded."""
        if key in self._models:
            self._models.pop(key)[0].close()

    def clear(self) -> None:
        """Close all."""
        for key in list(self._models):
            self.free(key)
