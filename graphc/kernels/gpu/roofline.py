"""How long a kernel takes on a device: a roofline with occupancy and waves, by the numbers of a data sheet.

A kernel takes as long as the slowest of what its blocks do at once: they compute, read and write memory, read the second cache,
and wait for what they read. What no data sheet says, how near to its rates a device comes, is in `Coefficients`: they begin with
what is known of an architecture, and measurements of a device refit them (`fitting.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from graphc.kernels.gpu.analyse import Cost, cost, registers
from graphc.kernels.gpu.devices import Gpu
from graphc.kernels.gpu.tile import TileKernel
from graphc.shapes import integer

LAUNCH_SECONDS = 2e-6
"""From the end of a kernel to the first work of the next in a recorded graph, and until its last block is done."""

WAIT_SECONDS = 0.4e-6
"""What is read arrives so much later: between the second cache's quarter of a microsecond and memory's half and more."""

RESERVED_SHARED = 1024
"""Bytes of shared memory that the device keeps for each block."""

FEW_WARPS = 4
"""Warps of a multiprocessor that its tensor cores and other units need at least: one for each of its four parts."""

BESIDE = 0.15
"""What else is done costs so much of its time, though it could be done at once: no schedule keeps all units busy all the time. So
of two schedules with the same longest term, the one with less beside it is the faster."""

UNEVEN = 1.5
"""Where multiprocessors stand still so much that it takes so many times as long, that is what limits a kernel."""


@dataclass(frozen=True)
class Coefficients:
    """How many times as long as by the data sheet it takes: products on tensor cores, other operations, bytes of shared memory,
    of memory and of the second cache, waits, and launches."""

    products: float = 1.05
    operations: float = 1.5
    shared: float = 1.0
    memory: float = 1.15
    cache: float = 1.0
    wait: float = 1.0
    launch: float = 1.0


TERMS = tuple(each.name for each in fields(Coefficients))

USUAL: Mapping[str, Coefficients] = {"sm_90": Coefficients(products=1.6)}
"""What is expected of an architecture before anything was measured on it; what is not here is as usual. Hopper's rates are those
of wgmma, and mma.sync reaches about 0.6 of them (arXiv 2402.13499, 2501.12084)."""


@dataclass(frozen=True)
class Estimate:
    """Seconds; what limits them; blocks that a multiprocessor holds at once; bytes of the device's memory and floating-point
    operations of all blocks; the data sheet's seconds of each of `TERMS`; and those of the plain roofline, which nothing goes
    below: of operations, or of bytes, with all units busy all the time."""

    seconds: float
    limit: str
    resident: int
    nbytes: int
    operations: int
    terms: Mapping[str, float]
    roofline: float = 0.0


def usual(gpu: Gpu) -> Coefficients:
    """What is expected of a GPU of which nothing was measured."""
    return USUAL.get(gpu.architecture, Coefficients())


def estimate(
    kernel: TileKernel, symbols: Mapping[str, int], gpu: Gpu, coefficients: Coefficients | None = None,
    own_registers: int | None = None,
) -> Estimate:  # fmt: skip
    """How long a kernel takes on a GPU; `own_registers` are those of a thread, counted where no compiler says them. Raises
    GraphcError as `cost` does."""
    sizes = [integer(each.size, symbols) * each.dtype.itemsize for each in kernel.tensors]
    held = own_registers or registers(kernel)
    return estimated(
        cost(kernel, symbols), sizes, kernel.threads, kernel.shared_bytes, held, gpu, coefficients or usual(gpu)
    )


def estimated(
    counted: Cost, sizes: list[int], threads: int, shared: int, own_registers: int, gpu: Gpu, coefficients: Coefficients
) -> Estimate:
    """The same for what was counted; `sizes` are the bytes of the kernel's tensors, of which the last is written."""
    held = resident_blocks(threads, shared, own_registers, gpu)
    operations = counted.blocks * (counted.products + counted.operations)
    terms = sheet_terms(counted, sizes, threads, held, gpu)
    if held == 0:
        return Estimate(math.inf, "its blocks do not fit", 0, 0, operations, terms)
    if counted.blocks == 0:
        return Estimate(0.0, "nothing", held, 0, 0, terms)
    seconds, limit = combined(terms, coefficients)
    uneven, idle = uneven_and_idle(counted.blocks, threads, held, gpu)
    lost = {TENSOR_CORES: uneven, ARITHMETIC: uneven, SHARED: uneven, CACHE: idle}
    if lost.get(limit, 1.0) > UNEVEN:
        limit = OCCUPANCY
    computing = counted.blocks * (counted.products / gpu.half + counted.operations / gpu.single)
    nbytes = _memory_bytes(counted, sizes, held, gpu)
    return Estimate(seconds, limit, held, nbytes, operations, terms, max(computing, terms["memory"]))


def sheet_terms(counted: Cost, sizes: list[int], threads: int, held: int, gpu: Gpu) -> dict[str, float]:
    """The seconds of each term by the data sheet, for blocks of which a multiprocessor holds so many."""
    blocks = counted.blocks
    if held == 0 or blocks == 0:
        return dict.fromkeys(TERMS, 0.0 if held else math.inf)
    uneven, idle = uneven_and_idle(blocks, threads, held, gpu)
    return {
        "products": blocks * counted.products / gpu.half * uneven,
        "operations": blocks * counted.operations / gpu.single * uneven,
        "shared": blocks * counted.shared / gpu.shared_bandwidth * uneven,
        "memory": _memory_bytes(counted, sizes, held, gpu) / gpu.bandwidth,
        "cache": blocks * (counted.read + counted.written) / gpu.cache_bandwidth * idle,
        "wait": math.ceil(blocks / (gpu.multiprocessors * held)) * counted.waits * WAIT_SECONDS,
        "launch": LAUNCH_SECONDS,
    }


def uneven_and_idle(blocks: int, threads: int, held: int, gpu: Gpu) -> tuple[float, float]:
    """How many times as long it takes because blocks do not fill multiprocessors evenly, or them with too few warps; and because
    there are fewer blocks than multiprocessors."""
    each = math.ceil(blocks / gpu.multiprocessors)
    busy = min(1.0, threads / 32 * min(held, each) / FEW_WARPS)
    return each * gpu.multiprocessors / blocks / busy, gpu.multiprocessors / min(blocks, gpu.multiprocessors)


TENSOR_CORES, ARITHMETIC, SHARED, MEMORY, CACHE, LATENCY, OCCUPANCY, LAUNCH = (
    "tensor cores", "arithmetic", "shared memory", "memory", "cache", "latency", "occupancy", "launch",
)  # fmt: skip


LIMITS: Mapping[str, tuple[str, ...]] = {
    TENSOR_CORES: ("products", "operations"),
    SHARED: ("shared",),
    MEMORY: ("memory",),
    CACHE: ("cache",),
    LATENCY: ("wait",),
}
"""What is done at once, and the terms that it takes, one after the other."""


def parts_of(terms: Mapping[str, float], by: Coefficients) -> tuple[dict[str, float], str]:
    """For each term, how much of its seconds by the data sheet a kernel takes; and what takes longest."""
    factors = {name: getattr(by, name) for name in TERMS}
    at_once = {limit: sum(factors[name] * terms[name] for name in names) for limit, names in LIMITS.items()}
    longest = max(at_once, key=lambda limit: at_once[limit])
    beside = {name for limit, names in LIMITS.items() if limit != longest for name in names}
    weights = {name: BESIDE if name in beside else 1.0 for name in TERMS}
    if at_once[longest] <= factors["launch"] * terms["launch"]:
        return weights, LAUNCH
    if (
        longest == TENSOR_CORES
        and factors["operations"] * terms["operations"] > factors["products"] * terms["products"]
    ):
        return weights, ARITHMETIC
    return weights, longest


def combined(terms: Mapping[str, float], by: Coefficients) -> tuple[float, str]:
    """Seconds of terms, and which of them is the longest."""
    weights, limit = parts_of(terms, by)
    return sum(weights[name] * getattr(by, name) * terms[name] for name in TERMS), limit


def resident_blocks(threads: int, shared: int, own_registers: int, gpu: Gpu) -> int:
    """How many blocks a multiprocessor holds at once; 0 if not even one fits."""
    fitting = [gpu.threads // threads, gpu.registers // (own_registers * threads), 32]
    if shared:
        fitting.append(gpu.shared // (shared + RESERVED_SHARED) if shared <= gpu.block_shared else 0)
    return min(fitting)


def _memory_bytes(counted: Cost, sizes: list[int], held: int, gpu: Gpu) -> int:
    """Bytes that memory itself reads and writes: of what blocks read again, the second cache has what fits into it; a tensor
    that does not fit beside the others is read anew for each wave of blocks."""
    asked = {number: counted.blocks * read for number, read in counted.reads.items()}
    once = {number: min(read, sizes[number]) for number, read in asked.items()}
    waves = math.ceil(counted.blocks / (gpu.multiprocessors * held)) if counted.blocks else 0
    again = 1 if sum(once.values()) <= gpu.cache else waves
    read = sum(min(asked[number], again * once[number]) for number in asked)
    return read + min(counted.blocks * counted.written, sizes[-1])
