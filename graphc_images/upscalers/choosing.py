"""Ways of making pictures larger, by name: pillow's filters, and networks in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from PIL import Image

from graphc_images.errors import ModelError, SettingError
from graphc_images.folders import ModelFolders
from graphc_images.from_files import FromFiles
from graphc_images.latent_scaling import LATENT_UPSCALERS
from graphc_images.models import Loaded
from graphc_images.pictures.arrays import flatten
from graphc_images.pictures.sizes import Resizer, resize
from graphc_images.upscalers.upscaler import Upscaler, enlarged_size, load_upscaler

FILTERS: Mapping[str, Image.Resampling] = {
    "Lanczos": Image.Resampling.LANCZOS,
    "Nearest": Image.Resampling.NEAREST,
    "None": Image.Resampling.LANCZOS,
}
"""A1111's names of those that need no file."""

NAMES = (*LATENT_UPSCALERS, *FILTERS)
"""What needs no file. Those of latents are for the second pass alone."""


class Enlargers:
    """Upscalers by what people call them; each file is opened once."""

    def __init__(self, folders: ModelFolders | None, loaded: Loaded, threads: int | None) -> None:
        self.folders, self.loaded, self.threads = folders, loaded, threads
        self._opened: FromFiles[Upscaler] = FromFiles(Upscaler.close)

    def __call__(self, name: str, tile: int = 192, overlap: int = 8) -> Resizer:
        """What makes a picture of another size: of a name in `FILTERS`, a file, or a name in the folders of models. Raises
        SettingError if there is none, and ModelError for a file that is not an upscaler."""
        if name in FILTERS:
            return lambda picture, width, height: picture.resize((width, height), FILTERS[name])
        return partial(self.network(name).upscaled, tile=tile, overlap=overlap)

    def network(self, name: str) -> Upscaler:
        """The network of a file, or of a name in the folders."""
        path = Path(name)
        if self.folders is not None:
            try:
                path = self.folders.find("upscaler", name)
            except ModelError as error:
                raise SettingError(f"{error}; without a file there are {', '.join(NAMES)}") from error
        if not path.is_file():
            raise SettingError(f"there is no upscaler {name!r}: it is not a file, and none of {', '.join(NAMES)}")
        return self._opened(path, lambda: load_upscaler(path, loaded=self.loaded, threads=self.threads), path)


def made_larger(
    picture: Image.Image,
    ways: Sequence[Resizer],
    scale: float,
    size: tuple[int, int] | None = None,
    visibility: float = 0.5,
) -> Image.Image:
    """A1111's Extras: a picture `scale` times as large, or at a size (width, height), cut to its shape. Of two ways the second
    counts by its visibility. Raises SettingError."""
    plain = flatten(picture)
    if size is None:
        made = [way(plain, *enlarged_size(plain, scale)) for way in ways]
    else:
        made = [resize(plain, *size, "crop", way) for way in ways]
    return made[0] if len(made) == 1 else Image.blend(made[0], made[1], visibility)
