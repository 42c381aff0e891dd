"""What there is to choose from: models, what belongs to them, the parameters of one; and how long a prompt is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from graphc_images import Settings
from graphc_images.conditions import ENCODERS, FAMILIES, family_name
from graphc_images.folders import ModelFile
from graphc_images.headers import header_of
from graphc_images.inversions import Inversions
from graphc_images.latent_scaling import LATENT_UPSCALERS
from graphc_images.models import Architecture
from graphc_images.pictures.hints import PREPROCESSORS
from graphc_images.prompts.chunks import Chunk, chunk_prompt
from graphc_images.prompts.embeddings import Embedding
from graphc_images.prompts.encoders import EncoderRules
from graphc_images.prompts.plan import read_prompt
from graphc_images.resolving import unit_of
from graphc_server.answers import Json
from graphc_server.own.asking import model_of
from graphc_server.own.parameters import OF_SAMPLERS, axes_of, parameters_of
from graphc_server.own.strict import Strict
from graphc_server.sdapi.painting import Served
from graphc_server.sdapi.requests import check_text

router = APIRouter(prefix="/graphc/v1")
WORDS = ("modelspec.trigger_phrase", "ss_trigger_words", "trigger_words")
LONGEST_WORDS = 300


@router.get("/files")
def files(service: Served) -> Json:
    """The models and what belongs to them, by the names that prompts and requests have for them. `selected` is the model for
    those who name none."""
    loras = [{"name": each.name.rpartition("/")[2], "words": _words(each)} for each in service.models.files("lora")]
    selected = model_of(service, "").file.name if service.models.listed() else None
    return Json({
        "models": [{"name": each.file.name, "title": each.title} for each in service.models.listed()],
        "selected": selected,
        "vaes": [each.name for each in service.models.files("vae")],
        "loras": loras,
        "embeddings": [each.name.rpartition("/")[2] for each in service.models.files("embedding")],
        "limits": {"steps": service.limits.steps, "pictures": service.limits.pictures, "pixels": service.limits.pixels},
    })  # fmt: skip


def _words(file: ModelFile) -> str:
    """What a LoRA's file says that it answers to."""
    try:
        status = os.stat(file.path)
    except OSError:
        return ""
    return _words_of(file.path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4096)
def _words_of(path: Path, *stamp: int) -> str:
    said = header_of(path).get("__metadata__", {})
    return next((str(said[name])[:LONGEST_WORDS] for name in WORDS if said.get(name)), "")


@router.get("/parameters")
def parameters(service: Served, model: Annotated[str, Query(max_length=1000)] = "") -> Json:
    """The parameters that a model has, and no other: with what is usual, from where to where, and what they are; the axes of
    plots; what each sampler takes besides. The model is the selected one if none is named."""
    listed = model_of(service, model)
    architecture = service.models.architecture(listed)
    upscalers = [*LATENT_UPSCALERS, *(name for name in service.models.upscalers() if name != "None")]
    others = [each.file.name for each in service.models.listed() if each.file.name != listed.file.name]
    controls = [each.name for each in service.models.files("controlnet")]
    return Json({
        "model": listed.file.name,
        "architecture": architecture.name,
        "unit": unit_of(architecture),
        "parameters": parameters_of(architecture, upscalers, others, controls),
        "preprocessors": [*PREPROCESSORS, *(each.name for each in service.models.files("preprocessor"))],
        "axes": axes_of(architecture, upscalers),
        "samplers": OF_SAMPLERS,
    })  # fmt: skip


class Text(Strict):
    """A prompt for a model."""

    text: Annotated[str, Field(max_length=100_000)] = ""
    model: Annotated[str, Field(max_length=1000)] = ""
    steps: Annotated[int, Field(ge=1, le=1000)] = 20
    negative: bool = False


@router.post("/tokens")
def tokens(service: Served, body: Text) -> Json:
    """How many tokens a prompt has for each text encoder, and how many the chunks hold that it fills (none for an encoder that
    reads a text of any length). Of a prompt that changes over the steps, the longest text counts, as A1111 counts."""
    check_text(body.text)
    architecture = service.models.architecture(model_of(service, body.model))
    plan = read_prompt(body.text, body.steps, negative=body.negative)
    embeddings = Inversions(service.models.folders).named(Settings(prompt=body.text))
    texts = plan.texts() or [""]
    found = {name: counted(texts, rules_of(architecture, name), embeddings) for name in architecture.text}
    return Json({"encoders": found, "networks": [each.name for each in plan.networks]})


def rules_of(architecture: Architecture, encoder: str) -> EncoderRules:
    """What a text encoder of a model wants around its tokens."""
    return FAMILIES[family_name(architecture)].talk or ENCODERS[encoder] if encoder == "llm" else ENCODERS[encoder]


def counted(texts: Sequence[str], rules: EncoderRules, embeddings: Sequence[Embedding]) -> dict[str, Any]:
    """The tokens of the longest text, and how many there is room for."""
    if rules.end is None:  # what is around the words of a language model is not the prompt's
        return {"tokens": max(len(rules.tokens(text)) for text in texts), "room": None}
    cut = [chunk_prompt(text, rules, embeddings=embeddings) for text in texts]
    room = rules.chunk - 2 if rules.chunk else None
    most = max((_length(chunks, rules) for chunks in cut), default=0)
    return {"tokens": most, "room": None if room is None else room * max(map(len, cut))}


def _length(chunks: Sequence[Chunk], rules: EncoderRules) -> int:
    """Tokens without start and end; a chunk that is followed by another counts as full."""
    room = rules.chunk - 2 if rules.chunk else 0
    last = chunks[-1].ids
    return room * (len(chunks) - 1) + last.index(rules.end) - (0 if rules.start is None else 1)
