"""Words to numbers: the tokenizers of CLIP, T5 and Qwen, with their tables, in Python alone."""

from graphc_images.tokenizers.clip import ClipTokenizer
from graphc_images.tokenizers.qwen import QwenTokenizer
from graphc_images.tokenizers.t5 import T5Tokenizer

__all__ = ["ClipTokenizer", "QwenTokenizer", "T5Tokenizer"]
