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
from graphc.kernels.gpu.devices import VULKAN, Gpu
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

MOST_BLOCKS = 3
"""Of a multiprocessor, that hide each other's times; more hide no more, as no schedule keeps all units busy all the time."""

UNEVEN = 1.5
"""Where multiprocessors stand still so much that it takes so many times as long, that is what limits a kernel."""


@dataclass(frozen=True)
class Coefficients:
    """How many times as long as by the data sheet it takes: products on tensor cores, those of several warps together, other
    operations, bytes of shared memory, of memory and of the second cache, waits, and launches."""

    products: float = 1.05
    group_products: float = 1.3
    operations: float = 1.5
    shared: float = 1.0
    memory: float = 1.15
    cache: float = 1.0
    wait: float = 1.0
    launch: float = 1.0


TERMS = tuple(each.name for each in fields(Coefficients))

USUAL: Mapping[str, Coefficients] = {
    "sm_90": Coefficients(
        products=2.3, group_products=0.64, operations=2.8, shared=0.57, memory=1.75, cache=0.76, wait=1.08, launch=1.17
    )
}
"""What is expected of an architecture before anything was measured on it; what is not here is as usual. Hopper's were measured on
an H200 (benchmarks/results/2026-11-26-gpu.md and 2026-11-27-gpu.md): its data sheet's rate is that of wgmma, of which mma.sync
reaches 0.65 at most, and the operations of threads are counted as if products waited for them."""


@dataclass(frozen=True)
class Terms:
    """The data sheet's seconds of each of `TERMS`, and how many blocks a multiprocessor carries out at once."""

    seconds: Mapping[str, float]
    together: int = 1


@dataclass(frozen=True)
class Estimate:
    """Seconds; what limits them; blocks that a multiprocessor holds at once; bytes of the device's memory and floating-point
    operations of all blocks; its terms; and the seconds of the plain roofline, which nothing goes below: of operations, or of
    bytes, with all units busy all the time."""

    seconds: float
    limit: str
    resident: int
    nbytes: int
    operations: int
    terms: Terms
    roofline: float = 0.0


def usual(gpu: Gpu) -> Coefficients:
    """What is expected of a GPU of which nothing was measured."""
    return USUAL.get(gpu.architecture.removeprefix(VULKAN), Coefficients())


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
    """The same for what was counted; `sizes` are the bytes of the kernel's tensors."""
    held = resident_blocks(threads, shared, own_registers, gpu)
    operations = sum(each.blocks * each.arithmetic for each in counted.phases)
    terms = sheet_terms(counted, sizes, threads, held, gpu)
    if held == 0:
        return Estimate(math.inf, "its blocks do not fit", 0, 0, operations, terms)
    if counted.blocks == 0:
        return Estimate(0.0, "nothing", held, 0, 0, terms)
    seconds, limit = combined(terms, coefficients)
    uneven, busy = uneven_and_busy(counted.blocks, threads, held, gpu)
    lost = {TENSOR_CORES: uneven / busy, ARITHMETIC: uneven / busy, SHARED: uneven / busy, CACHE: uneven}
    if lost.get(limit, 1.0) > UNEVEN:
        limit = OCCUPANCY
    computing = sum(
        each.blocks * ((each.products + each.group_products) / gpu.half + each.operations / gpu.single)
        for each in counted.phases
    )
    nbytes = _memory_bytes(counted, sizes, held, gpu)
    return Estimate(seconds, limit, held, nbytes, operations, terms, max(computing, terms.seconds["memory"]))


def sheet_terms(counted: Cost, sizes: list[int], threads: int, held: int, gpu: Gpu) -> Terms:
    """The terms by the data sheet, for blocks of which a multiprocessor holds so many."""
    if held == 0 or counted.blocks == 0:
        return Terms(dict.fromkeys(TERMS, 0.0 if held else math.inf))
    found = dict.fromkeys(TERMS, 0.0)
    found["memory"], found["launch"] = _memory_bytes(counted, sizes, held, gpu) / gpu.bandwidth, LAUNCH_SECONDS
    for each in counted.phases:
        blocks = each.blocks
        uneven, busy = uneven_and_busy(blocks, threads, held, gpu)
        found["products"] += blocks * each.products / gpu.half * uneven / busy
        found["group_products"] += blocks * each.group_products / gpu.half * uneven / busy
        found["operations"] += blocks * each.operations / gpu.single * uneven / busy
        found["shared"] += blocks * each.shared / gpu.shared_bandwidth * uneven / busy
        found["cache"] += blocks * (each.read + each.written) / gpu.cache_bandwidth * uneven
        found["wait"] += math.ceil(blocks / (gpu.multiprocessors * held)) * each.waits * WAIT_SECONDS
    return Terms(found, min(held, math.ceil(counted.blocks / gpu.multiprocessors)))


def uneven_and_busy(blocks: int, threads: int, held: int, gpu: Gpu) -> tuple[float, float]:
    """How many times as long it takes because blocks do not fill multiprocessors evenly: what one of them does takes as long as
    if all did as much, also what it reads of the second cache; and how much of a multiprocessor's units its warps keep busy."""
    each = math.ceil(blocks / gpu.multiprocessors)
    return each * gpu.multiprocessors / blocks, min(1.0, threads / 32 * min(held, each) / FEW_WARPS)


TENSOR_CORES, ARITHMETIC, SHARED, MEMORY, CACHE, LATENCY, OCCUPANCY, LAUNCH = (
    "tensor cores", "arithmetic", "shared memory", "memory", "cache", "latency", "occupancy", "launch",
)  # fmt: skip


LIMITS: Mapping[str, tuple[str, ...]] = {
    TENSOR_CORES: ("products", "group_products", "operations"),
    SHARED: ("shared",),
    MEMORY: ("memory",),
    CACHE: ("cache",),
    LATENCY: ("wait",),
}
"""What is done at once, and the terms that it takes, one after the other."""


def parts_of(terms: Terms, by: Coefficients) -> tuple[dict[str, float], str]:
    """For each term, how much of its seconds by the data sheet a kernel takes; and what takes longest.

    What could be done at once is only in part: a block copies, multiplies and writes in turns, and other blocks fill its gaps. So
    times of n blocks at once add up as their (n + 1)th powers do. What is short beside the longest hides behind it."""
    factors = vars(by)
    taken = {name: factors[name] * terms.seconds[name] for name in TERMS}
    at_once = {limit: sum(taken[name] for name in names) for limit, names in LIMITS.items()}
    longest = max(at_once, key=lambda limit: at_once[limit])
    weights = dict.fromkeys(TERMS, 1.0)
    if 0 < at_once[longest] < math.inf:
        power = 1 + min(terms.together, MOST_BLOCKS)
        shares = {limit: seconds / at_once[longest] for limit, seconds in at_once.items()}
        all_powers = sum(share**power for share in shares.values()) ** (1 / power)
        for limit, names in LIMITS.items():
            weights |= dict.fromkeys(names, (shares[limit] / all_powers) ** (power - 1))
    if at_once[longest] <= taken["launch"]:
        return weights, LAUNCH
    if longest == TENSOR_CORES and 2 * taken["operations"] > at_once[TENSOR_CORES]:
        return weights, ARITHMETIC
    return weights, longest


def combined(terms: Terms, by: Coefficients) -> tuple[float, str]:
    """Seconds of terms, and which of them is the longest."""
    weights, limit = parts_of(terms, by)
    factors = vars(by)
    return sum(weights[name] * factors[name] * terms.seconds[name] for name in TERMS), limit


def resident_blocks(threads: int, shared: int, own_registers: int, gpu: Gpu) -> int:
    """How many blocks a multiprocessor holds at once; 0 if not even one fits."""
    fitting = [gpu.threads // threads, gpu.registers // (own_registers * threads), 32]
    if shared:
        fitting.append(gpu.shared // (shared + RESERVED_SHARED) if shared <= gpu.block_shared else 0)
    return min(fitting)


def _memory_bytes(counted: Cost, sizes: list[int], held: int, gpu: Gpu) -> int:
    """Bytes that memory itself reads and writes. What is read of what others wrote, the second cache has as far as everything
    fits into it; and of what is discarded then, no more is written."""
    asked, writes, discarded = dict[int, int](), dict[int, int](), set[int]()
    for each in counted.phases:
        for number, nbytes in each.reads.items():
            asked[number] = asked.get(number, 0) + each.blocks * nbytes
        for number, nbytes in each.writes.items():
            writes[number] = writes.get(number, 0) + each.blocks * nbytes
        discarded |= each.discarded if gpu.discards else set()
    once = {number: min(nbytes, sizes[number]) for number, nbytes in asked.items() if nbytes}
    kept = min(1.0, gpu.cache / max(sum(once.values()), 1))
    found = 0
    for number, nbytes in writes.items():
        found += round(min(nbytes, sizes[number]) * (1 - kept if number in discarded else 1))
    own = 0
    for number, nbytes in once.items():
        if number in writes:
            own += nbytes
        else:
            found += min(asked[number], nbytes * _times(number, counted, once, held, gpu))
    return found + round(own * (1 - kept))


def _times(tensor: int, counted: Cost, once: Mapping[int, int], held: int, gpu: Gpu) -> int:
    """How often memory is asked for the same of a tensor. Blocks run in the order of axes, a wave of them at once. Those that
    read the same of a tensor are neighbours along the axes along which they do not read different elements of it; the second
    cache still has it if what all blocks between two neighbours read fits into it, or else if both are of one wave."""
    grid, apart, order, found = counted.grid, counted.apart, counted.order, 1
    for place, axis in enumerate(order):
        if grid[axis] == 1 or axis in apart[tensor]:
            continue
        slower = {*order[place:]}
        between = sum(
            nbytes // math.prod(grid[other] for other in apart[each] & slower) for each, nbytes in once.items()
        )
        if between > gpu.cache:
            begun = math.prod(grid[other] for other in order[: place + 1])
            found *= min(grid[axis], math.ceil(begun / (gpu.multiprocessors * held)))
    return found
