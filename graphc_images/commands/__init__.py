"""`graphc image`: pictures on the command line."""

from graphc_images.commands import upscale
from graphc_images.commands.image import image

__all__ = ["image", "upscale"]
