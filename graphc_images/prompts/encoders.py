"""What each text encoder wants around its tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from graphc_images.tokenizers import ClipTokenizer, QwenTokenizer, T5Tokenizer


@dataclass(frozen=True)
class EncoderRules:
    """How a text becomes rows of token ids for one encoder.

    `chunk` is how many ids a row has, with `start` and `end`; None where a row holds a text of any length, and has at least
    `shortest` ids. `pad` fills it. `comma` is the id after which a long text is best cut, if there is one. A language model reads
    the text in a `talk`, where `{}` stands for it, and brackets as any characters (`weighed` is false); the states of its first
    `dropped` ids, which are before the text, are left out.
    """

    name: str
    tokenizer: Callable[[], ClipTokenizer | QwenTokenizer | T5Tokenizer]
    start: int | None
    end: int | None
    pad: int
    chunk: int | None = 77
    shortest: int = 1
    comma: int | None = None
    talk: str = "{}"
    weighed: bool = True
    dropped: int = 0

    def tokens(self, text: str) -> list[int]:
        """The ids of a text alone."""
        return self.tokenizer().encode(text)

    def spelled(self, token: int) -> str:
        """What an id of CLIP's stands for."""
        tokenizer = self.tokenizer()
        assert isinstance(tokenizer, ClipTokenizer)
        return tokenizer.spelled(token)


_clip = cache(ClipTokenizer)
_t5 = cache(T5Tokenizer)
_qwen = cache(QwenTokenizer)
_CLIP_START, _CLIP_END, _CLIP_COMMA = ClipTokenizer.start, ClipTokenizer.end, 267

CLIP_L = EncoderRules("clip_l", _clip, _CLIP_START, _CLIP_END, pad=_CLIP_END, comma=_CLIP_COMMA)
CLIP_G = EncoderRules("clip_g", _clip, _CLIP_START, _CLIP_END, pad=0, comma=_CLIP_COMMA)
CLIP_H = EncoderRules("clip_h", _clip, _CLIP_START, _CLIP_END, pad=0, comma=_CLIP_COMMA)
T5 = EncoderRules("t5xxl", _t5, None, T5Tokenizer.end, pad=T5Tokenizer.pad, chunk=None, shortest=256)

ASKED = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
"""A prompt as somebody's words to Qwen, which is about to answer."""

QWEN_ASKED = EncoderRules("llm", _qwen, None, None, pad=QwenTokenizer.pad, chunk=None, talk=ASKED, weighed=False)
"""As Z-Image reads it; the same in ComfyUI and diffusers."""

ANSWERED = f"{ASKED}<think>\n\n</think>\n\n"
"""The same, with nothing left to think about."""

QWEN_ANSWERED = replace(QWEN_ASKED, talk=ANSWERED, shortest=512)
"""As Flux.2 klein reads it, with the states of padding."""

DESCRIBED = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial "
    "relationships of the objects and background:<|im_end|>\n" + ASKED
)
"""A prompt after Qwen was told what to do with it."""

QWEN_DESCRIBED = replace(QWEN_ASKED, talk=DESCRIBED, dropped=34)
"""As Qwen-Image reads it; the same in ComfyUI and diffusers."""

EDITED = (
    "<|im_start|>system\nDescribe the key features of the input image (color, shape, size, texture, objects, background), then "
    "explain how the user's text instruction should alter or modify the image. Generate a new image that meets the user's "
    "requirements while maintaining consistency with the original input where appropriate.<|im_end|>\n"
)
"""What Qwen is told to do with pictures and a prompt."""


def edited(pictures: Sequence[tuple[int, int]]) -> EncoderRules:
    """As Qwen-Image-Edit reads a prompt behind pictures: of each the number that it is called by (0: none), and how many words it
    is. The same in ComfyUI and diffusers."""
    shown = [
        (f"Picture {number}: " if number else "") + f"<|vision_start|>{'<|image_pad|>' * words}<|vision_end|>"
        for number, words in pictures
    ]
    return replace(QWEN_ASKED, talk=EDITED + ASKED.replace("{}", f"{''.join(shown)}{{}}"), dropped=64)
