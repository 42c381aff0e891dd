"""Memory, shuffles, copies and matrices of the dialect against NumPy, with the layouts that PTX says; and what accesses cost."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest

from graphc.errors import GraphcError
from graphc.kernels.gpu.emulate import Counters, KernelFault, compile_emulated

LANE = np.arange(32)


@functools.cache
def emulated(text: str):
    return compile_emulated(text)


def bytes_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, count).astype(np.uint8)


ROUND_TRIP = "".join(
    f"""KERNEL({kind}_{size}, 64, 1, const uint8_t *x, uint8_t *y) {{
    uint8_t a[{size}], b[{size}];
    load_{kind}_{size}(a, x + {size} * thread_index());
    store_shared_{size}(shared_memory() + {size} * thread_index(), a);
    load_shared_{size}(b, shared_memory() + {size} * thread_index());
    store_{"global" if kind == "readonly" else kind}_{size}(y + {size} * (63 - thread_index()), b);
}}
"""
    for kind in ("global", "readonly", "streaming")
    for size in (1, 2, 4, 8, 16)
)


@pytest.mark.parametrize("kind", ["global", "readonly", "streaming"])
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_bytes_come_and_go(kind, size):
    x, y = bytes_of(64 * size), np.zeros(64 * size, np.uint8)
    counters = emulated(ROUND_TRIP).launch(f"{kind}_{size}", [1], 64 * size, [x, y])
    np.testing.assert_array_equal(y.reshape(64, size), x.reshape(64, size)[::-1])
    assert counters.global_load_bytes == counters.global_store_bytes == 64 * size
    assert counters.global_load_sectors == counters.global_store_sectors == max(1, 32 * size // 32) * 2
    assert counters.global_load_requests == 2
    assert counters.shared_requests == 4
    assert counters.conflicts == 0
    assert counters.wide_share == (size == 16)


COST = """
KERNEL(strided, 32, 1, const float *x, float *y, int step) {
    const int lane = lane_index();
    store_shared(shared_memory() + 4 * lane * step, load_global(x + lane * step));
    warp_barrier();
    store_global(y + lane, load_shared<float>(shared_memory() + 4 * lane * step));
}
KERNEL(wide, 32, 1, float *y, int step) {
    float a[4] = {1, 2, 3, 4};
    store_shared_16(shared_memory() + 16 * lane_index() * step, a);
    store_global_16(y + 4 * lane_index(), a);
}
KERNEL(some, 32, 1, const float *x, float *y, int n) {
    float sum = 0;
    for (int i = 0; i < 8; i++)
        if (lane_index() < n) sum += load_global(x + 32 * i + lane_index());
    if (lane_index() < n) store_global(y + lane_index(), sum);
}
KERNEL(adds, 64, 1, float *y, unsigned *count) {
    atomic_add_global(y, 0.5f);
    store_global(count + 1 + thread_index(), atomic_add_global(count, 2u));
}
"""


@pytest.mark.parametrize(("step", "conflicts"), [(1, 0), (2, 1), (3, 0), (4, 3), (8, 7), (31, 0), (32, 31), (33, 0)])
def test_banks_of_scalars(step, conflicts):
    x, y = np.arange(32 * step, dtype=np.float32), np.zeros(32, np.float32)
    counters = emulated(COST).launch("strided", [1], 128 * step, [x, y, step])
    np.testing.assert_array_equal(y, x[::step])
    assert counters.shared_conflicts == 2 * conflicts
    assert counters.shared_wavefronts == 2 * (conflicts + 1)
    assert counters.global_load_sectors == min(32, 4 * step)


@pytest.mark.parametrize(("step", "conflicts"), [(1, 0), (2, 4), (3, 0), (4, 12), (8, 28), (9, 0)])
def test_banks_of_vectors(step, conflicts):
    y = np.zeros(128, np.float32)
    counters = emulated(COST).launch("wide", [1], 512 * step, [y, step])
    assert (counters.shared_conflicts, counters.shared_wavefronts) == (conflicts, conflicts + 4)
    assert counters.global_wide_bytes == counters.global_store_bytes == 512
    assert counters.wide_share == 1


@pytest.mark.parametrize("n", [0, 1, 8, 9, 32])
def test_lanes_that_take_no_part_cost_nothing(n):
    x, y = np.arange(256, dtype=np.float32), np.zeros(32, np.float32)
    counters = emulated(COST).launch("some", [1], 0, [x, y, n])
    np.testing.assert_array_equal(y[:n], x.reshape(8, 32).sum(0)[:n])
    assert counters.global_load_requests == (8 if n else 0)
    assert counters.global_load_sectors == 8 * -(-n // 8)
    assert counters.global_load_bytes == 8 * 4 * n


def test_atomic_additions():
    y, count = np.zeros(1, np.float32), np.zeros(65, np.uint32)
    counters = emulated(COST).launch("adds", [5], 0, [y, count], workers=3)
    assert y[0] == 0.5 * 64 * 5
    assert count[0] == 2 * 64 * 5
    assert counters.atomics == 2 * 64 * 5


WARP = """
KERNEL(exchange, 64, 1, const int *x, int *y, float *f, unsigned *u, int by) {
    const int v = load_global(x + thread_index());
    int *out = y + thread_index();
    store_global(out, shuffle_xor(v, by));
    store_global(out + 64, shuffle_down(v, by));
    store_global(out + 128, shuffle_up(v, by));
    store_global(out + 192, shuffle(v, by + lane_index()));
    store_global(f + thread_index(), shuffle_xor((float) v, by));
    store_global(u + thread_index(), shuffle_down((unsigned) v, by));
    const unsigned bits = ballot(v > 40);
    store_global(u + 64 + thread_index(), bits);
    store_global(out + 256, vote_any(v > 98) + 2 * vote_all(v > 0));
}
KERNEL(places, 64, 1, unsigned *y) {
    const unsigned block = block_index_x() + grid_size_x() * (block_index_y() + grid_size_y() * block_index_z());
    store_global(y + 64 * block + 32 * warp_index() + lane_index(), block * 1000 + thread_index() + grid_size_z() * 100000);
}
"""


@pytest.mark.parametrize("by", [0, 1, 2, 5, 16, 31])
def test_shuffles_and_votes(by):
    x = np.random.default_rng(by).integers(0, 100, 64).astype(np.int32)
    y, f, u = np.zeros(5 * 64, np.int32), np.zeros(64, np.float32), np.zeros(128, np.uint32)
    emulated(WARP).launch("exchange", [1], 0, [x, y, f, u, by], seed=by)
    warps = x.reshape(2, 32)
    down, up = (np.where((LANE + d >= 0) & (LANE + d < 32), LANE + d, LANE) for d in (by, -by))
    for got, source in zip(y.reshape(5, 2, 32), (LANE ^ by, down, up, (LANE + by) % 32), strict=False):
        np.testing.assert_array_equal(got, warps[:, source])
    np.testing.assert_array_equal(f.reshape(2, 32), warps[:, LANE ^ by])
    np.testing.assert_array_equal(u[:64].reshape(2, 32), warps[:, down])
    votes = ((warps > 40) << LANE.astype(np.uint64)).sum(1)
    np.testing.assert_array_equal(u[64:].reshape(2, 32), np.repeat(votes[:, None], 32, 1))
    np.testing.assert_array_equal(y[256:].reshape(2, 32)[:, 0], (warps > 98).any(1) + 2 * (warps > 0).all(1))


def test_places_in_a_grid():
    y = np.zeros(2 * 3 * 4 * 64, np.uint32)
    emulated(WARP).launch("places", [2, 3, 4], 0, [y], workers=2)
    blocks, threads = np.divmod(np.arange(len(y)), 64)
    np.testing.assert_array_equal(y, blocks * 1000 + threads + 400000)


COPY = "".join(
    f"""KERNEL(copy_{size}, 32, 1, const uint8_t *x, uint8_t *y, int n) {{
    shared_byte *mine = shared_memory() + {size} * lane_index();
    copy_async_{size}(mine, x + {size} * lane_index(), lane_index() < n);
    copy_commit();
    copy_async_{size}(mine + {32 * size}, x + {size} * lane_index(), true);
    copy_commit();
    copy_wait<1>();
    uint8_t first[{size}], second[{size}];
    load_shared_{size}(first, mine);
    copy_wait<0>();
    load_shared_{size}(second, mine + {32 * size});
    store_global_{size}(y + {size} * lane_index(), first);
    store_global_{size}(y + {32 * size} + {size} * lane_index(), second);
}}
"""
    for size in (4, 8, 16)
)


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("n", [0, 5, 32])
def test_copies_arrive_in_groups_and_are_0_where_not_valid(size, n):
    x, y = bytes_of(32 * size), np.ones(64 * size, np.uint8)
    counters = emulated(COPY).launch(f"copy_{size}", [1], 64 * size, [x, y, n])
    np.testing.assert_array_equal(y[: n * size], x[: n * size])
    assert not y[n * size : 32 * size].any()
    np.testing.assert_array_equal(y[32 * size :], x)
    assert counters.global_load_bytes == (32 + n) * size


MATRICES = "".join(
    f"""KERNEL(load{how}_x{count}, 32, 1, const uint8_t *x, unsigned *y, int stride) {{
    for (int i = lane_index(); i < {count} * 8; i += 32) {{
        unsigned row[4];
        load_global_16(row, x + 16 * i);
        store_shared_16(shared_memory() + i * stride, row);
    }}
    warp_barrier();
    unsigned r[{count}];
    load_matrix{how}_x{count}(r, shared_memory() + lane_index() % {8 * count} * stride);
    for (int i = 0; i < {count}; i++) store_global(y + i * 32 + lane_index(), r[i]);
}}
"""
    for how in ("", "_transposed")
    for count in (1, 2, 4)
)


@pytest.mark.parametrize("how", ["", "_transposed"])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize(("stride", "conflicts"), [(16, 0), (32, 1), (80, 0), (128, 7), (144, 0)])
def test_matrices_are_loaded(how, count, stride, conflicts):
    x = np.random.default_rng(0).integers(0, 1 << 16, (count, 8, 8)).astype(np.uint16)
    y = np.zeros((count, 32), np.uint32)
    counters = emulated(MATRICES).launch(f"load{how}_x{count}", [1], 8 * count * stride, [x.view(np.uint8), y, stride])
    matrices = x.transpose(0, 2, 1) if how else x
    pairs = y.view(np.uint16).reshape(count, 32, 2)
    np.testing.assert_array_equal(pairs, matrices[:, LANE // 4][:, LANE, :].reshape(count, 32, 8)[
        :, LANE[:, None], LANE[:, None] % 4 * 2 + np.arange(2)
    ])  # fmt: skip
    assert counters.load_matrix_wavefronts == count * (1 + conflicts)
    assert counters.load_matrix_conflicts == count * conflicts


# Name: type of factors, of sums, depth, numbers in a register, registers of a, b and c.
PRODUCTS = {
    "m16n8k16_half": (np.float16, np.float32, 16, 2, (4, 2, 4)),
    "m16n8k16_half_half": (np.float16, np.float16, 16, 2, (4, 2, 2)),
    "m16n8k16_bfloat16": (ml_dtypes.bfloat16, np.float32, 16, 2, (4, 2, 4)),
    "m16n8k8_half": (np.float16, np.float32, 8, 2, (2, 1, 4)),
    "m16n8k8_tf32": (np.float32, np.float32, 8, 1, (4, 2, 4)),
    "m16n8k32_int8": (np.int8, np.int32, 32, 4, (4, 2, 4)),
}
C_TYPE = {np.float32: "float", np.float16: "unsigned", np.int32: "int"}
PRODUCT = "".join(
    f"""KERNEL({name}, 32, 1, const unsigned *x, const unsigned *w, unsigned *y) {{
    unsigned a[{na}], b[{nb}];
    {C_TYPE[sums]} c[{nc}];
    for (int i = 0; i < {na}; i++) a[i] = load_global(x + i * 32 + lane_index());
    for (int i = 0; i < {nb}; i++) b[i] = load_global(w + i * 32 + lane_index());
    for (int i = 0; i < {nc}; i++) load_global_4(c + i, y + i * 32 + lane_index());
    mma_{name}(c, a, b);
    for (int i = 0; i < {nc}; i++) store_global_4(y + i * 32 + lane_index(), c + i);
}}
"""
    for name, (_, sums, _, _, (na, nb, nc)) in PRODUCTS.items()
)


def registers_of(matrix: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """What lanes hold: `rows` and `columns` are [registers, 32, numbers in a register]."""
    return np.ascontiguousarray(matrix[rows, columns]).view(np.uint32)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_matrices(name):
    factors, sums, depth, each, (na, nb, nc) = PRODUCTS[name]
    draw = np.random.default_rng(1)
    if factors == np.int8:
        a, b, c = (draw.integers(-128, 128, shape).astype(factors) for shape in ((16, depth), (depth, 8), (16, 8)))
        c = c.astype(sums)
    else:
        a, b, c = (draw.normal(size=shape).astype(factors) for shape in ((16, depth), (depth, 8), (16, 8)))
        c = c.astype(sums)
    if name.endswith("tf32"):
        a, b = ((part.view(np.uint32) & 0xFFFFE000).view(np.float32) for part in (a, b))

    register, lane, number = (axis.ravel() for axis in np.ogrid[:na, :32, :each])
    group, place = lane // 4, lane % 4
    a_rows = (group[None, :, None] + 8 * (register % 2)[:, None, None] + 0 * number).astype(int)
    a_columns = place[None, :, None] * each + number + (register // 2)[:, None, None] * 4 * each
    b_registers = np.arange(nb)[:, None, None]
    b_rows = place[None, :, None] * each + number + b_registers * 4 * each
    b_columns = group[None, :, None] + 0 * b_rows
    in_c = 4 // sums().itemsize
    c_numbers = np.arange(4).reshape(nc, 1, in_c)
    c_rows = group[None, :, None] + c_numbers // 2 * 8
    c_columns = place[None, :, None] * 2 + c_numbers % 2

    x, w = registers_of(a, a_rows, a_columns), registers_of(b, b_rows, b_columns)
    y = registers_of(c, c_rows, c_columns)
    counters = emulated(PRODUCT).launch(name, [1], 0, [x, w, y])
    assert counters.mma == 1
    wide = np.int64 if factors == np.int8 else np.float64
    right = c.astype(wide) + a.astype(wide) @ b.astype(wide)
    got = np.zeros((16, 8), sums)
    got[c_rows, c_columns] = y.view(sums).reshape(c_rows.shape)
    tolerance = {np.int32: 0, np.float32: 4e-6, np.float16: 2e-2}[sums]
    np.testing.assert_allclose(got.astype(wide), right, rtol=0, atol=tolerance)


def test_tensor_cores_do_not_read_the_lowest_bits_of_tf32():
    x, w = np.full(4 * 32, 0x3F801FFF, np.uint32), np.full(2 * 32, 0x3F800000, np.uint32)
    y = np.zeros(4 * 32, np.uint32)
    emulated(PRODUCT).launch("m16n8k8_tf32", [1], 0, [x, w, y])
    assert (y.view(np.float32) == 8).all()


REFUSED = {
    "another kernel": ("nothing", [1], [], "has no kernel nothing"),
    "too few arguments": ("places", [1], [], "has 1 parameters, and 0 arguments"),
    "a number of another size": (
        "exchange",
        [1],
        [np.zeros(64, np.int32)] * 4 + [np.int64(1)],
        "argument 4 has 8 bytes",
    ),
    "an array that is not contiguous": ("places", [1], [np.zeros((64, 2), np.uint32)[:, 0]], "must be contiguous"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_launches_that_are_refused(name):
    kernel, grid, arguments, said = REFUSED[name]
    with pytest.raises(GraphcError, match=said):
        emulated(WARP).launch(kernel, grid, 0, arguments)


def test_a_grid_of_no_blocks_is_an_error():
    with pytest.raises(KernelFault, match="has no blocks"):
        emulated(WARP).launch("places", [0], 0, [np.zeros(64, np.uint32)])


def test_an_array_of_no_elements_cannot_be_touched():
    with pytest.raises(KernelFault, match=r"before buffer|behind the end of buffer"):
        emulated(WARP).launch("places", [1], 0, [np.zeros(0, np.uint32)])


def test_counters_are_those_of_the_library():
    """emulator_entry.h and `Counters` list the same."""
    from graphc.kernels.gpu.dialect import FOLDER

    header = (FOLDER / "emulator_entry.h").read_text()
    listed = header[header.index("struct EmulatorCounters") : header.index("struct EmulatorReport")]
    names = [line.split(";")[0].split()[-1] for line in listed.splitlines() if "uint64_t" in line]
    assert names == list(Counters.__dataclass_fields__)
