"""Networks that enlarge pictures, from files as people have them.

upscaler = load_upscaler("4x-UltraSharp.pth")
larger = upscaler.upscaled(picture, 1024, 1024)
"""

from graphc_images.upscalers.choosing import FILTERS, Enlargers, made_larger
from graphc_images.upscalers.upscaler import Upscaler, enlarged_size, load_upscaler

__all__ = ["FILTERS", "Enlargers", "Upscaler", "enlarged_size", "load_upscaler", "made_larger"]
