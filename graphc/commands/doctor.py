"""`graphc doctor`: the GPUs of this machine, what uses them now, and the commands after which more does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphc.commands import options
from graphc.commands.output import bytes_text, note, printable, say, say_json
from graphc.errors import GraphcError
from graphc.files import replacing

if TYPE_CHECKING:
    from graphc.hardware.advice import Advice, Diagnosis, Way
    from graphc.hardware.gpu import GPU
    from graphc.runtime.devices import Device

HOW_TO_READ = (
    "Of the lists of commands for a GPU, one is enough; the first suits it best.",
    "Then `graphc devices` names it, and --device uses it.",
)

Backends = Annotated[
    list[str] | None,
    typer.Argument(metavar="BACKEND...", help="Say what these lack instead: vulkan, cuda, …", show_default=False),
]
Record = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write down what was looked at, to report what is wrong.", show_default=False),
]


def doctor(backends: Backends = None, as_json: options.Json = False, record: Record = None) -> None:
    """Find this machine's GPUs, say which of ggml's backends suits each, what is missing, and how to get it."""
    from graphc.backends.table import find_backend
    from graphc.hardware.advice import diagnose, reinstall
    from graphc.hardware.machine import ThisMachine
    from graphc.hardware.recording import RecordingMachine

    asked = [find_backend(name).name for name in backends or ()]
    machine = RecordingMachine(ThisMachine())
    devices, installed, trouble = what_ggml_has()
    found = diagnose(machine, devices, installed, asked)
    if as_json:
        say_json({**as_document(found), "devices": [asdict(each) for each in devices]})
    else:
        for line in report(found, devices):
            say(printable(line))
    if record is not None:
        with replacing(record) as unfinished:
            unfinished.write_text(machine.text(), encoding="utf-8")
        note(f"wrote {printable(record)}; look into it before you send it to anyone")
    if not devices:
        note(f"error: nothing can run: {printable(trouble)}; {reinstall()}")
        raise typer.Exit(1)


def what_ggml_has() -> tuple[list[Device], list[str], str]:
    """The devices, the backends that were built, and what is wrong if there are none, not even the CPU."""
    try:
        from graphc.backends.brought import brought
        from graphc.backends.install import installed
        from graphc.ggml_library import loaded
        from graphc.hardware.advice import CPU
        from graphc.runtime.devices import devices

        there = [*installed(), *brought(), *([] if loaded.own is None else [CPU])]
        return devices(), there, "ggml has no device"
    except (GraphcError, OSError) as error:
        return [], [], f"ggml cannot be loaded ({error})"


def report(found: Diagnosis, devices: Sequence[Device]) -> list[str]:
    """The diagnosis as a person reads it; where backends were asked for, of these alone."""
    if found.asked:
        return [line for way in found.asked for line in _way_lines(way)]
    lines = [f"{found.system.name}, {found.architecture}", "", "Works now"]
    lines += [f"  {each.name}: {each.description}" for each in devices] or ["  nothing"]
    if found.cpu.missing:
        lines += [f"  the CPU would be faster with {' and '.join(found.cpu.missing)}:"]
        lines += [f"    {step}" for step in found.cpu.steps]
    lines += ["", "Graphics processors"]
    lines += [f"  {describe(each.gpus)}" for each in found.advice] or [f"  none found{_hidden(found)}"]
    together: dict[object, list[Advice]] = {}
    for each in found.advice:
        together.setdefault(each.ways if each.is_idle else each, []).append(each)
    for group in together.values():
        lines += ["", *advise(group[0], ", ".join(each.gpu.name for each in group))]
    return [*lines, "", *HOW_TO_READ] if found.idle else lines


def _hidden(found: Diagnosis) -> str:
    return "; a container sees those alone that it was started with" if found.system.is_container else ""


def describe(gpus: Sequence[GPU]) -> str:
    """One line of what is known of a GPU, or of several that are alike."""
    gpu = gpus[0]
    shared = f" ({bytes_text(gpu.memory)})" if gpu.vendor == "Apple" and gpu.memory else ""
    architecture = f"compute capability {gpu.architecture}" if gpu.vendor == "NVIDIA" else gpu.architecture
    facts = (
        bytes_text(gpu.memory) if gpu.memory and not gpu.integrated else "",
        f"part of the processor, shares its memory{shared}" if gpu.integrated else "",
        architecture if gpu.architecture else "",
        f"driver {gpu.driver} {gpu.driver_version}".strip() if gpu.driver else "no driver" if gpu.computes else "",
        "" if gpu.computes else "a display, which computes nothing",
        *(each.pci_address for each in gpus),
    )
    count = f"{len(gpus)} × " if len(gpus) > 1 else ""
    return f"{count}{gpu.name}: {', '.join(fact for fact in facts if fact)}"


def advise(advice: Advice, name: str) -> list[str]:
    """What is to be done for a GPU, the best first; what is worse than what is used already is not mentioned."""
    if not advice.gpu.computes:
        return [f"{name}: nothing to do; models run on the CPU"]
    if not advice.ways:
        return [f"{name}: ggml has no backend for it here"]
    used = advice.used
    state = f"used by {used.backend}, as --device {' or '.join(used.devices)}" if used else "not used"
    lines = [f"{name}: {state}"]
    for way in advice.ways[: advice.ways.index(used) if used else None]:
        lines += [f"  {line}" for line in _way_lines(way)]
    return lines


def _way_lines(way: Way) -> list[str]:
    return [f"{way.backend}: {_state(way)}", *(f"  {step}" for step in way.steps)]


def _state(way: Way) -> str:
    if way.devices:
        return f"works, as --device {' or '.join(way.devices)}"
    if way.never:
        return f"not possible, though it is installed: {way.never}" if way.installed else f"not possible: {way.never}"
    missing = f"missing: {'; '.join(way.missing)}" if way.missing else "all that it needs is here"
    if not way.installed:
        return missing
    return f"installed, but finds no device; {missing}" if way.steps else "installed"


def as_document(found: Diagnosis) -> dict[str, Any]:
    """The diagnosis for programs."""
    return {
        "system": found.system.name,
        "architecture": found.architecture,
        "cpu": asdict(found.cpu),
        "gpus": [
            {
                **asdict(gpu),
                "used_by": each.used.devices if each.used else (),
                "ways": [asdict(way) for way in each.ways],
            }
            for each in found.advice
            for gpu in each.gpus
        ],
        "asked": [asdict(way) for way in found.asked],
    }
