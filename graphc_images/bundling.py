"""A model as a program that paints without Python: the C++ of `native/painter`, compiled around the model's engines."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import graphc
from graphc_images.conditions import ENCODERS, FAMILIES, family_name
from graphc_images.errors import ImageError, ModelError
from graphc_images.hashes import Hashes, labels
from graphc_images.models import ImageModel
from graphc_images.native_tables import tables_source
from graphc_images.pipeline import Pipeline
from graphc_images.resolving import unit_of

PROGRAM = "painter"
NATIVE = Path(__file__).with_name("native")
"""The headers with samplers, schedulers and noise, and beside them a folder with the program that uses them."""

FACTS = "model.txt"
"""The file beside the engines that says what `native/painter/model.hpp` has to know of a model."""

READ = ("sd1", "sd2")
"""Families of models that the program knows: those with one of CLIP's encoders."""


def parts_of(model: ImageModel) -> Mapping[str, str]:
    """The engines that the program has, by their names in C++, and which part of the model each is. Raises ModelError for a model
    that the program does not know."""
    found = model.architecture
    known = found.kind == "unet" and not found.extra and family_name(found) in READ
    plain = not (found.latent.shift or found.latent.shifts or found.latent.scales or model.recognized.edm)
    if not (known and plain):
        raise ModelError(f"{found.name}: the native program paints with Stable Diffusion 1 and 2 and their like alone")
    (encoder,) = found.text
    model.require("denoiser", "vae", encoder)
    if model.components["vae"].component == "tiny":
        raise ModelError("the native program has no use for a tiny autoencoder: give a whole one")
    return {"text_encoder": encoder, "denoiser": "denoiser", "decoder": "vae decoder"}


def bundle(
    pipeline: Pipeline,
    folder: str | os.PathLike[str],
    *,
    target: str | None = None,
    cpu: str | None = None,
    jobs: int | None = None,
    cpp: str | os.PathLike[str] | None = None,
) -> Path:
    """Write a folder with a program that paints with a pipeline's model, and the model's engines; returns the program.

    The engines have the pipeline's weights, with the LoRAs that are on. Without a `target` the program is for this computer, and
    its pictures have the bits of the pipeline's. With one (`x86_64-linux`; see docs/cpp.md) it is for another system. The project
    is kept in the folder `cpp`, if that is given. Raises ImageError, and GraphcError where it cannot be compiled.
    """
    parts = parts_of(pipeline.model)
    made = Path(folder)
    if made.exists() and not (made.is_dir() and (not any(made.iterdir()) or (made / FACTS).is_file())):
        raise ImageError(f"{made}: it is there already, and no folder of such a program")
    with _project(cpp) as project:
        engines = project / "engines"
        engines.mkdir(exist_ok=True)
        for name, part in parts.items():
            pipeline.model.save(part, engines / f"{name}.gguf", cpp=project / name)
            pipeline.model.free(part)  # compilers need memory too
        write_sources(project)
        program = graphc.build_application(project, PROGRAM, jobs=jobs, target=target, cpu=cpu)
        made.mkdir(parents=True, exist_ok=True)
        libraries = program.parent / "libraries"
        for file in (*engines.iterdir(), program, *(libraries.iterdir() if libraries.is_dir() else ())):
            shutil.copy(file, made)
    (made / FACTS).write_text(facts_of(pipeline), encoding="utf-8")
    return made / program.name


@contextmanager
def _project(folder: str | os.PathLike[str] | None) -> Iterator[Path]:
    """The folder of the project: one that stays, or one for a while."""
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        yield Path(folder)
    else:
        with tempfile.TemporaryDirectory(prefix="graphc-painter-") as made:
            yield Path(made)


def write_sources(project: Path) -> None:
    """Write the program's own C++ into the folder of a project."""
    for folder in (NATIVE, NATIVE / "samplers", NATIVE / PROGRAM):
        for file in (each for each in folder.iterdir() if each.is_file()):
            place = project if folder.name == PROGRAM else project / folder.relative_to(NATIVE)
            place.mkdir(exist_ok=True)
            shutil.copy(file, place)
    (project / "tables.cpp").write_text(tables_source(), encoding="utf-8")


def facts_of(pipeline: Pipeline) -> str:
    """What the program has to know of the model: a name and a value in each line."""
    model = pipeline.model
    found, usual = model.architecture, model.architecture.defaults
    (encoder,) = found.text
    layer = FAMILIES[family_name(found)].layer
    files = {name: Path(model.components[name].file) for name in ("denoiser", "vae")}
    vae = None if files["vae"] == files["denoiser"] else files["vae"]
    hashes = labels(pipeline.hashes or Hashes(), files["denoiser"], vae, {}, {})
    facts: dict[str, object] = {
        "painter": 1,
        "graphc": version("graphc"),
        "architecture": found.name,
        "Model": pipeline.name,
        **{name: hashes.get(name) or "" for name in ("Model hash", "VAE hash", "VAE")},
        "prediction": model.recognized.prediction,
        "zero_snr": int(model.recognized.zero_snr),
        "scale": found.latent.scale,
        "unit": unit_of(found),
        "pad": ENCODERS[encoder].pad,
        "layer": layer.last,
        "skips": int(layer.skips),
        "steps": usual.steps,
        "cfg": usual.cfg,
        "sampler": usual.sampler,
        "scheduler": usual.scheduler,
        "width": usual.width,
        "height": usual.height,
    }
    return "".join(f"{name.replace(' ', '_')} {_line(str(value))}\n" for name, value in facts.items())


def _line(text: str) -> str:
    """A text on one line, whatever somebody called a file."""
    return " ".join(text.splitlines())
