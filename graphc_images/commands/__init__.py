"""`graphc image`: pictures on the command line."""

from graphc_images.commands.image import image

__all__ = ["image"]
