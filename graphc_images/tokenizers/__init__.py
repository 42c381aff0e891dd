"""Words to numbers: the tokenizers of CLIP and of T5, with their tables, in Python alone."""

from graphc_images.tokenizers.clip import ClipTokenizer
from graphc_images.tokenizers.t5 import T5Tokenizer

__all__ = ["ClipTokenizer", "T5Tokenizer"]
