"""A model of pictures: the components of a checkpoint, as functions on arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

import graphc
from graphc_images.errors import ModelError, SettingError
from graphc_images.models import denoisers, looking
from graphc_images.models.architectures import ARCHITECTURES, Architecture
from graphc_images.models.components import Component, components_of, named
from graphc_images.models.denoisers import Conditioning
from graphc_images.models.encoders import Encoded
from graphc_images.models.latents import packed, unpacked
from graphc_images.models.looking import Look
from graphc_images.models.loras import Loras, Source, Strength
from graphc_images.models.memory import Loaded, Memory, TooLarge
from graphc_images.models.parts import Tiles, decoding, encoding, in_rows, in_tiles
from graphc_images.models.recognize import Recognized, recognize
from graphc_images.models.together import Call, evaluated, room_of
from graphc_images.sampling.guided import Weakening

ENGINES = Path(__file__).parents[1] / "engines"
"""The programs that are shipped; they have no weights."""

Types = str | Mapping[str, str]
"""A type of graphc's for weights, for all parts or by part."""

PLAIN, CONTROLLED, FREE, PROMPTED = "denoiser", "denoiser controlled", "denoiser free", "denoiser prompted"
"""The programs of a denoiser: as it is, with what ControlNets and adapters add, and with FreeU too, or with pictures that it
looks at. All have the same weights."""

ALIKE = 4
"""Latents that a processor evaluates at once: with up to so many, sums have one order, and each latent the bits it has alone."""

KEPT_LOOKS = 4
"""Pictures whose words a model keeps."""

LARGE = ("t5xxl", "llm")
"""The text encoders that are loaded for a LoRA only if it is for nothing else; they give their last states alone."""

FLAGS = {"t5xxl": "--t5"}
"""On the command line, of text encoders whose flags are not as their names."""


class ImageModel:
    """What `load_model` returns. Engines are loaded when they are first used; `close` frees them.

    `architecture` is the row of `architectures.py`, `recognized` what the checkpoint says besides. `tiles` says when the
    autoencoder works in parts. What does not fit into memory raises TooLarge.
    """

    def __init__(
        self,
        recognized: Recognized,
        components: Mapping[str, Component],
        engines: Path,
        loaded: Loaded,
        threads: int | None,
        types: Types = "checkpoint",
    ) -> None:
        self.recognized, self.components = recognized, dict(components)
        self.engines, self.loaded, self.threads, self.types = engines, loaded, threads, types
        self.tiles, self._seamless = Tiles(), ""
        self._loras = Loras(self._engines_there)
        self._denoiser = PLAIN
        self._used: set[str] = set()
        self._seen: dict[Look, np.ndarray] = {}
        self._numbers = count()

    @property
    def architecture(self) -> Architecture:
        """Which kind of model it is."""
        return self.recognized.architecture

    def denoise(
        self,
        x: np.ndarray,
        time: float | np.ndarray,
        conditioning: Conditioning,
        weakening: Weakening = denoisers.WHOLE,
    ) -> np.ndarray:
        """What the denoiser predicts for a latent x [batch, channels, height, width]: float32, the same shape, unscaled.

        `time` is the step of training, 0 to 999, which may lie between two; for a flow its sigma, 0 to 1. `weakening` is what
        it leaves out of itself. Raises SettingError for what it cannot leave out.
        """
        times = np.broadcast_to(np.asarray(time, np.float32), (len(x),))
        room = room_of(self.loaded.device)
        return evaluated(Call(id(self), self._denoise, x, times, conditioning, weakening, room))

    def _denoise(
        self, x: np.ndarray, times: np.ndarray, conditioning: Conditioning, weakening: Weakening
    ) -> np.ndarray:
        key = self._turn_to(self._program(conditioning))
        if key in (FREE, PROMPTED) and not conditioning.residuals:
            residuals, features = self.added_shapes(*x.shape[2:])
            nothing = [tuple(np.zeros((1, *shape), np.float32) for shape in shapes) for shapes in (residuals, features)]
            conditioning = replace(conditioning, residuals=nothing[0], features=nothing[1])
        inputs = {each.name: each.shape for each in self._engine(key).inputs}
        run = partial(denoisers.run, self.architecture.kind, inputs, partial(self._run, key), weakening=weakening)
        return in_rows(run, x, times, conditioning, ALIKE if self.loaded.device == "cpu" else None)

    def _program(self, conditioning: Conditioning) -> str:
        """Which of the denoiser's programs takes this. Raises SettingError."""
        if conditioning.looked and conditioning.free is not None:
            raise SettingError("free_u: it cannot be used with an IP-Adapter, whose U-Net is another")
        if conditioning.free is None:
            return PROMPTED if conditioning.looked else CONTROLLED if conditioning.residuals else PLAIN
        if self.architecture.kind != "unet":
            raise SettingError(f"free_u: {self.architecture.name} has no U-Net, whose decoder could be scaled")
        return FREE

    def added_shapes(self, height: int = 1, width: int = 1) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
        """The shapes [channels, height, width] of the residuals and of the features that controls add to its denoiser, for a
        latent of this size. Raises ModelError if nothing can be added to it."""
        sizes = {"height": height, "width": width, "batch": 1, "tokens": 1}
        key = self._turn_to(CONTROLLED if self._denoiser == PLAIN else self._denoiser)
        inputs = self._engine(key).inputs
        residuals, features = (
            [each.sizes(sizes)[1:] for each in inputs if each.name.startswith(kind)] for kind in ("residual", "feature")
        )
        return residuals, features

    def _turn_to(self, wanted: str) -> str:
        """Of the denoiser's programs, which have the same weights, one is there at a time: this one from now on."""
        if wanted != self._denoiser:
            self.free(self._denoiser)
            self._denoiser = wanted
        return wanted

    def add_part(self, component: Component) -> str:
        """Have another part beside those of the checkpoint; what it is called from now on is returned."""
        name = f"{component.part.engine}#{next(self._numbers)}"
        self.components[name] = component
        return name

    def run_part(self, name: str, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What such a part makes of its inputs. Raises TooLarge."""
        return self._run(name, feed)

    def remove_part(self, name: str) -> None:
        """Free such a part."""
        self.free(name)
        del self.components[name]

    def encode_tokens(self, encoder: str, ids: np.ndarray, mask: np.ndarray | None = None) -> Encoded:
        """The states of rows of token ids [batch, tokens]; `encoder` is one of `architecture.text`. `mask` [batch, tokens] is 0
        for tokens that T5 and Qwen are not to look at. Raises ModelError if the encoder is in no file that was given."""
        self.free(f"{encoder} seeing")
        feed = {"input_ids": np.ascontiguousarray(ids, np.int64)}
        if any(each.name == "attention_mask" for each in self._engine(encoder).inputs):
            feed["attention_mask"] = np.ascontiguousarray(np.ones_like(ids) if mask is None else mask, np.int64)
        found = self._run(encoder, feed)
        if encoder not in LARGE:
            return Encoded(**found)
        states = found["states"][None]
        return Encoded(states, states)

    def encode_seeing(self, encoder: str, ids: np.ndarray, looks: Sequence[Look]) -> Encoded:
        """The same of texts in which tokens stand for the words of pictures, which are the same in each text."""
        words = [self._words_of(encoder, look) for look in looks]
        self.free(encoder)  # its other program has the same weights
        feed = {"input_ids": ids, "seen": looking.inserted(ids, words), "places": looking.placed(ids, looks)}
        states = self._run(f"{encoder} seeing", feed)["states"][None]
        return Encoded(states, states)

    def _words_of(self, encoder: str, look: Look) -> np.ndarray:
        """The words [words, width] of a picture; those of the last few are kept."""
        if look not in self._seen:
            found = self._run(f"{encoder} visual", looking.windows(look))["words"]
            self._seen = dict(list(self._seen.items())[1 - KEPT_LOOKS :])
            self._seen[look] = looking.words_of(found, look)
        return self._seen[look]

    def embedding_ids(self, encoder: str, name: str, vectors: np.ndarray) -> list[int]:
        """Token ids that stand for vectors [rows, width] of textual inversion: rows that the encoder's table gets when they are
        first asked for. `name` is theirs alone. Raises CheckpointError for another width."""
        engine = self._engine(encoder)
        if name not in engine.embeddings:
            engine.load_embeddings({name: np.ascontiguousarray(vectors, np.float32)})
        return engine.embeddings[name]

    def encode_image(self, image: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """The latent, as the denoiser takes it, of pictures [batch, 3, height, width], float32, -1 to 1: the mean of what the
        autoencoder finds likely, or with `noise` of the latent's shape one of it."""
        return self.architecture.latent.from_encoded(self.encode_pixels(image, noise))

    def encode_pixels(self, image: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """The same as the autoencoder has it: neither shifted nor scaled. A tiny one finds one latent likely, and no other."""
        latent, tiny = self.architecture.latent, self._tiny

        def run(array: np.ndarray) -> np.ndarray:
            found = self._run("vae encoder", {"image": np.ascontiguousarray(array)})
            if tiny:
                return latent.to_encoded(packed(found["latent"], latent.packed))
            return np.concatenate([found["mean"], found["log_variance"]], 1)

        with self._alone("vae encoder"):
            found = in_tiles(run, np.asarray(image, np.float32), self.tiles, encoding(latent.pixels), self._wrapped)
        mean, log_variance = (found, None) if tiny else np.split(found, 2, 1)
        if noise is not None and log_variance is not None:
            mean = mean + np.exp(np.clip(log_variance, -30, 20) / 2) * noise
        return np.asarray(mean, np.float32)

    def decode_latent(self, latent: np.ndarray) -> np.ndarray:
        """The pictures [batch, 3, height, width], about -1 to 1, of the denoiser's latents."""
        return self.decode_encoded(self.architecture.latent.to_encoded(np.asarray(latent, np.float32)))

    def decode_encoded(self, encoded: np.ndarray) -> np.ndarray:
        """The same of latents as the autoencoder has them."""
        latent = self.architecture.latent

        def run(array: np.ndarray) -> np.ndarray:
            if self._tiny:
                return self._decode_tiny("vae", latent.from_encoded(array))
            return self._run("vae decoder", {"latent": np.ascontiguousarray(array)})["image"]

        with self._alone("vae decoder"):
            return in_tiles(run, encoded, self.tiles, decoding(latent.pixels), self._wrapped)

    def _alone(self, key: str) -> AbstractContextManager[None]:
        return self.loaded.alone((id(self), key))

    @property
    def _tiny(self) -> bool:
        """True if the autoencoder is a tiny one."""
        return "vae" in self.components and self.components["vae"].component == "tiny"

    def _decode_tiny(self, name: str, latent: np.ndarray) -> np.ndarray:
        """The pictures of the denoiser's latents, by a tiny autoencoder: these know them as the denoiser has them."""
        own = unpacked(np.asarray(latent, np.float32), self.architecture.latent.packed)
        return self._run(f"{name} decoder", {"latent": np.ascontiguousarray(own)})["image"]

    def decode_preview(self, latent: np.ndarray) -> np.ndarray:
        """The same by the tiny autoencoder if there is one, else small and rough."""
        if "tiny" not in self.components:
            return self.architecture.latent.preview(latent)
        return self._decode_tiny("tiny", latent)

    def load_lora(self, source: Source, strength: Strength = 1.0, name: str | None = None) -> str:
        """Add a LoRA to the denoiser and the text encoders, by their strengths if it is a mapping (`{"denoiser": 0.8,
        "text_encoder": 0.5}`); the name that it has from now on is returned.

        Raises NothingFitsError for a file that has nothing for this model, CheckpointError for a damaged one, and SettingError
        for a name that is taken; the model is as before then. What fits nothing is in `unmatched`.
        """
        keys, there = self._read_by_loras(), self._engines_there()
        used = [key for key in keys if key not in LARGE or key in there]
        return self._loras.load(source, strength, name, used, self._engine, [key for key in keys if key not in used])

    def set_lora(self, strengths: Mapping[str, Strength]) -> None:
        """Change strengths of LoRAs, by name; 0 leaves one out. Raises SettingError for a name that there is not."""
        self._loras.set(strengths)

    def unload_lora(self, name: str | None = None) -> None:
        """Take off a LoRA, or all: the weights are those of before. Raises SettingError for a name that there is not."""
        self._loras.unload(name)

    @property
    def loras(self) -> dict[str, Strength]:
        """The LoRAs that are on, and how much."""
        return self._loras.strengths

    @property
    def unmatched(self) -> dict[str, list[str]]:
        """Of each LoRA what it has for this model, and the model has not."""
        return self._loras.unmatched

    @property
    def seamless(self) -> str:
        """The axes along which pictures can be laid beside themselves without a seam: "", "x", "y" or "xy". Raises SettingError
        where a model has no convolutions that could do that."""
        return self._seamless

    @seamless.setter
    def seamless(self, axes: str) -> None:
        if axes and self.architecture.kind != "unet":
            raise SettingError(
                f"tiling: {self.architecture.name} has no convolutions that could see the other end of a picture"
            )
        if axes != self._seamless:
            self._seamless = axes
            self.free(*filter(self._convolves, self._used))

    def _convolves(self, key: str) -> bool:
        """True if there is another engine for seamless pictures."""
        return key.partition(" ")[0] not in self.architecture.text

    @property
    def _wrapped(self) -> tuple[bool, bool]:
        return "y" in self._seamless, "x" in self._seamless

    def warm(self, part: str) -> None:
        """Load the engine of a part, `vae encoder` and the like for its halves. Raises ModelError if its tensors do not fit."""
        self._engine(part)

    def save(self, part: str, path: str | os.PathLike[str], *, cpp: str | os.PathLike[str]) -> None:
        """Write the engine of a part, with its weights, and the C++ project that runs it. Raises ModelError and OSError."""
        self._engine(part).save(path, cpp=cpp)

    def close(self) -> None:
        """Free what is loaded of this model; it is loaded again if it is needed."""
        self._seen.clear()
        self.free(*self._used)

    def free(self, *keys: str) -> None:
        """Free engines of it, if they are loaded."""
        for key in keys:
            self.loaded.free((id(self), key))

    def sibling(
        self, source: Source, vae: Source | None = None, text: Mapping[str, Source] | Sequence[Source] = ()
    ) -> ImageModel:
        """Another checkpoint, loaded as this one was. Raises as `load_model`."""
        found = load_model(source, vae=vae, text=text, engines=self.engines, loaded=self.loaded, threads=self.threads)
        found.types = self.types
        return found

    def _read_by_loras(self) -> list[str]:
        denoiser = [self._denoiser] if "denoiser" in self.components else []
        return [*denoiser, *(each for each in self.architecture.text if each in self.components)]

    def _engines_there(self) -> dict[str, graphc.Model]:
        """The engines that are loaded and that LoRAs change."""
        found = {key: self.loaded.there((id(self), key)) for key in self._read_by_loras()}
        return {key: engine for key, engine in found.items() if engine is not None}

    def _run(self, key: str, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the engine of a part makes of its inputs. Raises TooLarge."""
        self._engine(key)
        with self._fitting(key):
            return self.loaded.run((id(self), key), feed)

    @contextmanager
    def _fitting(self, key: str) -> Iterator[None]:
        """Says of what part it is that something did not fit into memory."""
        try:
            yield
        except TooLarge as error:
            raise TooLarge(f"{self.architecture.name}: {key}: {error}") from error

    def _engine(self, key: str) -> graphc.Model:
        """The engine of a part, `vae encoder` and the like for its halves; loaded if it is not."""
        if (engine := self.loaded.used((id(self), key))) is not None:
            return engine
        name, _, half = key.partition(" ")
        self.require(name)
        found = self.components[name]
        path = self.engines / f"{found.engine}{'_' + half if half else ''}.gguf.gz"
        if not path.exists():
            raise ModelError(
                f"{path}: there is no such engine; python -m examples.image_engines makes it, in graphc's sources"
            )
        self._used.add(key)
        kept = self._type(key)
        size, copied = found.weight_bytes(half, kept), found.widened_bytes(half) if kept == "checkpoint" else 0
        with self._fitting(key):
            return self.loaded.get((id(self), key), size, lambda: self._load(key, path, found), copied)

    def require(self, *parts: str) -> None:
        """Raises ModelError, with all that are missing, if any of these parts are in no file that was given."""
        if missing := [self._missing(part) for part in parts if part not in self.components]:
            raise ModelError(f"{next(iter(self.components.values())).file}: it has {', and '.join(missing)}")

    def _missing(self, name: str) -> str:
        if name == "denoiser":
            return f"no denoiser, but only {', '.join(self.components)}"
        if name == "vae":
            return f"no autoencoder, which {self.architecture.name} needs: give its file (--vae FILE, vae=)"
        flag = FLAGS.get(name, f"--{name.replace('_', '-')}")
        return f"no text encoder {name}, which {self.architecture.name} reads: give its file ({flag} FILE, text=)"

    def _type(self, key: str) -> str:
        """The type in which a part's weights are kept."""
        return self.types if isinstance(self.types, str) else self.types.get(key.partition(" ")[0], "checkpoint")

    def _steady(self, key: str) -> Sequence[str]:
        """The inputs of a part that stay the same while a picture is made, of those that it multiplies by its weights."""
        reads_words = key == self._denoiser or (key.startswith("controlnet") and "hint" not in key)
        if not reads_words:
            return ()
        return ("encoder_hidden_states", *(("text_embeds", "time_ids") if self.architecture.sizes else ()))

    def _load(self, key: str, path: Path, found: Component) -> graphc.Model:
        try:
            engine = graphc.load(
                path,
                weights=found.tensors,
                component=found.component or None,
                dtype=self._type(key),
                circular=self._seamless if self._convolves(key) else "",
                threads=self.threads,
                device=self.loaded.device,
                memory=self.loaded.given if self.loaded.streams else None,
                steady=self._steady(key),
            )
        except graphc.GraphcError as error:
            raise ModelError(f"{found.file}: {error}") from error
        if key in self._read_by_loras():
            self._loras.fit(key, engine)
        return engine


def load_model(
    source: Source,
    *,
    vae: Source | None = None,
    text: Mapping[str, Source] | Sequence[Source] = (),
    tiny: Source | None = None,
    engines: str | os.PathLike[str] = ENGINES,
    architectures: Sequence[Architecture] = ARCHITECTURES,
    loaded: Loaded | None = None,
    memory: Memory = None,
    device: str = "cpu",
    threads: int | None = None,
    types: Types = "checkpoint",
) -> ImageModel:
    """Recognize a checkpoint, and make a model of it; nothing is loaded yet.

    `source` is a file of the whole model, or of the denoiser alone; `vae`, `text` (`{"clip_l": FILE, "t5xxl": FILE}`,
    or the files alone, which are told by their tensors) and `tiny` (TAESD) are files for the others, which are taken before what
    is in the first. A tiny autoencoder may also be the `vae`.

    `memory` is a limit for all that is loaded and computed on the `device` (see `Loaded`); several models may share a `loaded`,
    which has both. `types` are what weights are kept in (`"q8_0"`; see graphc's docs/weights.md), for all parts or by part
    (`{"denoiser": "q8_0"}`).

    Raises ModelError, with the file's name, for one that is not known, and CheckpointError for a damaged one.
    """
    tensors, file = graphc.open_checkpoint(source), named(source)
    try:
        recognized = recognize(tensors, architectures)
    except ModelError as error:
        raise ModelError(f"{file}: {error}") from error
    components = components_of(recognized.architecture, tensors, file, vae, text, tiny)
    if unknown := [] if isinstance(types, str) else [name for name in types if name not in components]:
        raise SettingError(f"types: there is no part {unknown[0]!r}; there are {', '.join(components)}")
    return ImageModel(recognized, components, Path(engines), loaded or Loaded(memory, device), threads, types)
