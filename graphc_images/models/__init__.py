"""Models of pictures: which one a checkpoint is, and its parts as functions on arrays.

model = load_model("v1-5-pruned.safetensors")
model.architecture.name, model.recognized.prediction         # "Stable Diffusion 1", "eps"
encoded = model.encode_tokens("clip_l", ids)                  # states of every layer, as they are and normed
words = encoded.skipping(1)
predicted = model.denoise(latent, 601.0, Conditioning(words))
picture = model.decode_latent(latent)
"""

from graphc_images.models.architectures import ARCHITECTURES, Architecture, Defaults, Part, Prediction
from graphc_images.models.denoisers import Conditioning
from graphc_images.models.encoders import Encoded
from graphc_images.models.latents import LatentFormat
from graphc_images.models.loras import Source, Strength
from graphc_images.models.memory import Loaded, TooLarge
from graphc_images.models.model import ImageModel, load_model
from graphc_images.models.parts import Tiles
from graphc_images.models.recognize import Recognized, recognize
from graphc_images.models.together import room_of, together

__all__ = [
    "ARCHITECTURES", "Architecture", "Conditioning", "Defaults", "Encoded", "ImageModel", "LatentFormat", "Loaded", "Part",
    "Prediction", "Recognized", "Source", "Strength", "Tiles", "TooLarge", "load_model", "recognize", "room_of", "together",
]  # fmt: skip
