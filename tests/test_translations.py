"""Operators that PyTorch's exporter has no form for, or a wrong one: what graphc adds gives what PyTorch gives."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = pytest.mark.torch

NAN, INFINITE = float("nan"), float("inf")


class Several(torch.nn.Module):
    """Calls functions that are given by name, each with all tensors."""

    def __init__(self, functions):
        super().__init__()
        self.functions = functions

    def forward(self, *given):
        return {name: list(_tensors(function(*given))) for name, function in self.functions.items()}


def _tensors(made):
    for each in made if isinstance(made, list | tuple) else [made]:
        yield torch.view_as_real(each.resolve_conj()) if each.is_complex() else each


def check(functions, *given, exact=True, free=None, others=()):
    """Each function of these tensors, and of `others` with other sizes, gives what PyTorch gives."""
    module = Several(functions)
    shapes = None if free is None else {"given": free}
    model = graphc.from_torch(module, given, dynamic_shapes=shapes, threads=1)
    for tensors in (given, *others):
        expected = module(*tensors)
        found = model.run({info.name: tensors[int(info.name.rsplit("_", 1)[1])].numpy() for info in model.inputs})
        named = [(name, each) for name, several in expected.items() for each in several]
        assert len(named) == len(found)
        for (name, wanted), array in zip(named, found.values(), strict=True):
            assert array.shape == wanted.shape, name
            assert array.dtype == wanted.numpy().dtype, name
            if exact and not wanted.is_floating_point():
                np.testing.assert_array_equal(array, wanted, err_msg=name)
            else:
                np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=2e-6, err_msg=name)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def with_nan(*shape):
    x = numbers(*shape)
    x.flatten()[::7] = NAN
    return x


def test_axes_of_size_one_alone_are_taken_away():
    check(
        {
            "other": lambda x: x.squeeze(1),
            "last": lambda x: x.squeeze(-1),
            "one": lambda x: x.squeeze(-2),
            "several": lambda x: x.squeeze((0, -2, -1)),
            "none": lambda x: x.squeeze((0, 1)),
            "all": lambda x: x.squeeze(),
            "scalar": lambda x: x.sum().squeeze(0),
        },
        numbers(2, 3, 1, 4),
    )
    check(
        {"free": lambda x: x.squeeze(0) + x.squeeze(-1)}, numbers(3, 4), free=({0: "rows"},), others=[(numbers(7, 4),)]
    )


def test_order_is_stable_both_ways():
    ties = torch.randint(0, 4, (3, 700), generator=torch.Generator().manual_seed(0)).float()
    check(
        {
            "up": lambda x: torch.sort(x, stable=True),
            "down": lambda x: torch.sort(x, dim=-1, stable=True, descending=True),
            "across": lambda x: torch.sort(x, dim=0, stable=True, descending=True),
            "indices": lambda x: torch.argsort(x, dim=1, stable=True),
            "one": lambda x: torch.sort(x[:1], dim=0, stable=True),
            "scalar": lambda x: torch.sort(x[0, 0], stable=True),
        },
        ties,
    )
    check({"numbers": lambda x: torch.sort(x, stable=True)}, torch.tensor([3, -1, 3, 0, -1]))


def test_numbers_of_a_rank():
    functions = {
        "kth": lambda x: torch.kthvalue(x, 3),
        "kth across": lambda x: torch.kthvalue(x, 2, dim=0, keepdim=True),
        "median": lambda x: torch.median(x, dim=-1),
        "median across": lambda x: torch.median(x, dim=0, keepdim=True),
        "median of all": torch.median,
        "of numbers": lambda x: torch.nanmedian(x, dim=1),
        "of all numbers": torch.nanmedian,
        "of one": lambda x: torch.median(x[:, :1], dim=1),
        "scalar": lambda x: torch.median(x[0, 0], dim=0),
    }
    check(functions, numbers(4, 9))
    check({name: each for name, each in functions.items() if "of" in name or name == "kth"}, numbers(4, 8))
    check({"whole": lambda x: torch.median(x, dim=0)}, torch.tensor([[4, 1], [2, 8], [3, 5]]))
    x = numbers(3, 6)
    x[0, 2] = x[0, 4] = NAN
    x[1] = NAN
    check(
        {
            "median": lambda x: torch.median(x, dim=1)[0],
            "of numbers": lambda x: torch.nanmedian(x, dim=1)[0],
            "of all": torch.median,
            "of all numbers": torch.nanmedian,
        },
        x,
    )
    check({"median": lambda x: x.median(0)}, numbers(5, 3), free=({0: "rows"},), others=[(numbers(8, 3),)])


def test_places_among_edges():
    edges = torch.tensor([-1.0, 0.0, 0.0, 0.5, 2.0])
    x = torch.tensor([[-2.0, -1.0, 0.0], [0.3, 0.5, 2.0], [3.0, NAN, -INFINITE]])
    rows = torch.tensor([[-1.0, 0.0, 1.0], [0.0, 0.0, 4.0], [5.0, 6.0, 7.0]])
    check(
        {
            "left": lambda edges, x, rows: torch.searchsorted(edges, x),
            "right": lambda edges, x, rows: torch.searchsorted(edges, x, right=True),
            "side": lambda edges, x, rows: torch.searchsorted(edges, x, side="right"),
            "small": lambda edges, x, rows: torch.searchsorted(edges, x, out_int32=True),
            "rows": lambda edges, x, rows: torch.searchsorted(rows, x),
            "number": lambda edges, x, rows: torch.searchsorted(edges, 0.25),
            "sorter": lambda edges, x, rows: torch.searchsorted(edges.flip(0), x, sorter=torch.arange(4, -1, -1)),
            "buckets": lambda edges, x, rows: torch.bucketize(x, edges),
            "buckets right": lambda edges, x, rows: torch.bucketize(x, edges, right=True),
            "nothing": lambda edges, x, rows: torch.searchsorted(edges[:0], x),
        },
        edges,
        x,
        rows,
    )


def test_running_numbers():
    ties = torch.randint(0, 5, (2, 3, 8), generator=torch.Generator().manual_seed(1)).float()
    functions = {
        "largest": lambda x: torch.cummax(x, -1),
        "least so far": lambda x: torch.cummax(x - INFINITE, -1),
        "smallest": lambda x: torch.cummin(x, 1),
        "first axis": lambda x: torch.cummax(x, 0),
        "product": lambda x: torch.cumprod(x, 1),
        "product of the last": lambda x: torch.cumprod(x, -1),
        "powers": lambda x: torch.vander(x[0, 0], 3),
        "whole": lambda x: torch.cumprod(x.long(), 2),
        "one": lambda x: torch.cummax(x[..., :1], -1),
    }
    check(functions, ties)


def test_numbers_and_their_signs():
    x, y = with_nan(3, 5), numbers(3, 5, seed=1)
    y[0, 1] = NAN
    check(
        {
            "largest": torch.fmax,
            "smallest": torch.fmin,
            "rows": lambda x, y: torch.fmax(x, y[0]),
            "root": lambda x, y: torch.hypot(y, y[0] * 3e30),
            "nothing": lambda x, y: torch.hypot(y * 0, y * 0),
        },
        x,
        y,
    )
    signed = torch.tensor([0.0, -0.0, 2.0, -3.0, INFINITE, -INFINITE])
    check(
        {
            "signs": lambda x, y: torch.copysign(y, x),
            "whose": lambda x, y: torch.signbit(x),
            "inverse": lambda x, y: 1 / torch.copysign(x, y),
            "root": lambda x, y: torch.hypot(x, y),
        },
        signed,
        signed.flip(0),
    )


def test_numbers_minus_tensors():
    functions = {
        "float": lambda x: 1.0 - x,
        "whole": lambda x: 3 - x,
        "times": lambda x: torch.rsub(x, 2.5, alpha=2),
    }
    whole = torch.arange(6).reshape(2, 3)
    for x in (whole, whole.to(torch.int32), whole.to(torch.float32), whole.to(torch.float64)):
        check(functions, x)
    check({"mask": lambda x: (1.0 - x) * -1e4}, whole % 2, free=({0: "batch"},), others=[(whole[:1],)])


def test_rows_in_groups_with_a_matrix_each():
    """As transformers computes mixtures of experts, by an operator that it adds to PyTorch's."""
    pytest.importorskip("transformers.integrations.moe")
    given = numbers(7, 4), numbers(3, 4, 5, seed=1)
    ends = [torch.tensor(each, dtype=torch.int32) for each in ([2, 2, 7], [0, 3, 4], [0, 0, 0])]
    functions = {"groups": lambda *tensors: torch.ops.transformers.grouped_mm_fallback(*tensors)}
    check(functions, *given, ends[0], others=[(*given, each) for each in ends[1:]])
    rows = ({0: "rows"}, None, None)
    check(functions, *given, ends[0], free=rows, others=[(numbers(9, 4), given[1], ends[0])])


def test_distances():
    x, y = numbers(2, 5, 4), numbers(2, 6, 4, seed=1)
    norms = {f"p={p}": partial(torch.cdist, p=p) for p in (0.0, 1.0, 2.0, 3.0, INFINITE)}
    check(norms | {"same": lambda x, y: torch.cdist(x, x), "each": lambda x, y: torch.cdist(x[:, None], y[None])}, x, y)
    many = numbers(40, 4, seed=2) * 3
    check({"many": torch.cdist}, many, numbers(30, 4, seed=3) * 3, exact=False)


def test_pools_of_windows_that_differ():
    check(
        {
            "means": lambda plane, space: F.adaptive_avg_pool3d(space, (2, 3, 4)),
            "mean": lambda plane, space: F.adaptive_avg_pool3d(space, (1, 5, 2)),
            "largest": lambda plane, space: F.adaptive_max_pool2d(plane, (3, 5), return_indices=True),
            "row": lambda plane, space: F.adaptive_max_pool1d(plane[0], 4),
        },
        numbers(2, 3, 7, 8),
        numbers(1, 2, 5, 7, 6),
    )


def test_sums_and_means_at_places():
    x, source = numbers(3, 5), numbers(2, 5, seed=1)
    index = torch.tensor([[0, 1, 2, 0, 0], [0, 2, 2, 1, 0]])
    reductions = {
        f"{how} {included}": partial(_reduced, how, included)
        for how in ("mean", "sum", "amax")
        for included in (True, False)
    }
    fewer = {"fewer": lambda x, index, source: x.scatter_reduce(-1, index[:1, :2], source, "mean")}
    check(reductions | fewer, x, index, source)


def _reduced(how, included, x, index, source):
    return x.scatter_reduce(0, index, source, how, include_self=included)


def test_whether_all_or_any_are_true():
    functions = {"all": torch.ops.aten._is_all_true, "any": torch.ops.aten._is_any_true}
    check(
        functions, torch.tensor([[True, True], [True, True]]), others=[(torch.tensor([[True, False], [True, True]]),)]
    )
    check(functions, torch.tensor([False, False]))


def test_what_masks_choose_and_what_is_copied():
    check(
        {
            "chosen": torch.masked_select,
            "rows": lambda x, mask: torch.masked_select(x, mask[:, :1]),
            "none": lambda x, mask: torch.masked_select(x, mask & ~mask),
            "copied": lambda x, mask: _written(x),
            "side by side": lambda x, mask: [
                torch.hstack([x, x]),
                torch.vstack([x[0], x[1]]),
                torch.dstack([x[0], x[1]]),
            ],
            "columns": lambda x, mask: torch.column_stack([x[0], x.T]),
            "rows of numbers": lambda x, mask: torch.hstack([x[0, 0], x[0, 1]]),
            "rectified": lambda x, mask: F.rrelu(x, 0.1, 0.3),
        },
        numbers(3, 5),
        numbers(3, 5, seed=1) > 0,
    )


def _written(x):
    x = x.clone()
    x[:, 1:] = x[:, :1]
    return x


def test_windows_and_losses():
    check(
        {
            "hamming": lambda x: x * torch.hamming_window(9),
            "symmetric": lambda x: x * torch.hamming_window(9, periodic=False, alpha=0.5, beta=0.4),
            "kaiser": lambda x: x * torch.kaiser_window(9, True, 8.0),
            "frequencies": lambda x: x * torch.fft.fftfreq(9, 0.5),
            "half": lambda x: x[:, :5] * torch.fft.rfftfreq(9),
            "smoothed": lambda x: F.cross_entropy(x, torch.tensor([1, 8, 0]), label_smoothing=0.1),
            "ignored": lambda x: F.cross_entropy(x, torch.tensor([1, -100, 0])),
        },
        numbers(3, 9),
    )


def test_random_numbers():
    class Random(torch.nn.Module):
        def forward(self, x):
            return {
                "normal": x * torch.randn(1000, generator=None),
                "uniform": x * torch.rand(1000, generator=None),
                "between": x * torch.empty(1000).uniform_(2, 3),
                "order": torch.randperm(1000),
            }

    found = graphc.from_torch(Random(), torch.ones(1000), threads=1).run(x=np.ones(1000, np.float32))
    assert abs(found["normal"].mean()) < 0.2
    assert 0.8 < found["normal"].std() < 1.2
    assert 0.4 < found["uniform"].mean() < 0.6
    assert 2.4 < found["between"].mean() < 2.6
    assert sorted(found["order"]) == list(range(1000))


COMPLEX = {
    "unsqueeze": lambda z: [z.unsqueeze(0), z.unsqueeze(-1), z.unsqueeze(-2)],
    "expand": lambda z: [z[:, :1].expand(-1, 4, 8), z.expand(5, 2, 3, 8), z[0].broadcast_to(4, 3, 8)],
    "select": lambda z: [z[:, 1], z[..., -1], z.select(-2, 0)],
    "split": lambda z: [*z.split([1, 5, 2], -1), *z.split(2, 1), *z.chunk(2, -1), *z.unbind(1), *z.unbind(-1)],
    "repeat": lambda z: [z.repeat(2, 1, 2), z.repeat(2, 1, 1, 2), z.tile(3), z.repeat_interleave(2, dim=-1)],
    "reshape": lambda z: [z.reshape(6, 8), z.reshape(2, -1), z.flatten(1), z.unflatten(-1, (2, 4))],
    "squeeze": lambda z: [z[:, :1].squeeze(1), z.squeeze(-1), z[..., :1].squeeze(-1), z[:, :1, :1].squeeze((1, -1))],
    "squeeze all": lambda z: [z[:, :1].squeeze(), z[0, 0, 0].squeeze()],
    "index": lambda z: [z[torch.tensor([1, 0])], z[:, [2, 0]], z[..., [0, 3, 2]], z[[1, 0], :, [2, 2]]],
    "mask": lambda z: z[torch.tensor([True, False])],
    "index_select": lambda z: [z.index_select(-1, torch.tensor([0, 2])), z.index_select(0, torch.tensor([1]))],
    "gather": lambda z: [z.gather(-1, torch.full((2, 3, 4), 3)), z.gather(0, torch.ones(1, 2, 8, dtype=torch.long))],
    "embedding": lambda z: F.embedding(torch.tensor([[0, 2], [1, 1]]), z[0]),
    "where": lambda z: [torch.where(z.real > 0, z, -z), torch.where(z.real > 0, z, 0), z.masked_fill(z.real > 0, 1j)],
    "triangle": lambda z: [z.tril(), z.triu(1), z.diagonal(dim1=-2, dim2=-1)],
    "sums": lambda z: [z.cumsum(-1), z.sum(-1), z.mean((0, -1))],
    "pad": lambda z: [F.pad(z, (1, 2)), F.pad(z, (0, 0, 1, 0))],
    "written": lambda z: [_overwritten(z), z.slice_scatter(z[:, :1], 1, 2, 3), z.select_scatter(z[:, 1], 1, 0)],
    "filled": lambda z: [
        torch.zeros_like(z),
        torch.ones_like(z),
        torch.full_like(z, 2 + 1j),
        z.new_ones(3),
        z.new_full((2,), 1j),
    ],
    "of other types": lambda z: [
        torch.zeros_like(z, dtype=torch.float32),
        torch.ones_like(z, dtype=torch.complex128),
        z.new_full((3,), 2, dtype=torch.int64),
    ],
    "made": lambda z: [torch.zeros(8, dtype=z.dtype) + z, torch.ones(8, dtype=z.dtype) * z, torch.full((8,), 2j) * z],
    "types": lambda z: [z.to(torch.complex128), z.to(torch.complex128).to(torch.complex64), z.detach()],
    "powers": lambda z: [z.exp(), z**2, z**3, z.square()],
    "numbers": lambda z: [
        z * 2.5,
        z * 1j,
        z + (1 + 2j),
        1 - z,
        z / 2,
        1 / z,
        -z,
        z.conj() * z,
        torch.rsub(z, 1j, alpha=2),
    ],
    "products": lambda z: [torch.bmm(z, z.mT), z @ z.mH, torch.vdot(z[0, 0], z[0, 1]), torch.outer(z[0, 0], z[0, 1])],
    "compared": lambda z: [z == z.flip(0), z != z.conj(), z == 0, z.isnan(), z.isinf()],
    "parts": lambda z: [z.real, z.imag, z.conj().imag * 2, z.abs(), z.angle()],
}


def test_complex_numbers():
    functions = {name: partial(_of_pairs, each) for name, each in COMPLEX.items()}
    check(functions, numbers(2, 3, 8, 2))


def _of_pairs(function, x):
    return function(torch.view_as_complex(x))


def _overwritten(z):
    z = z.clone()
    z[:, 0] = z[:, 1]
    z[..., 1:3] = 0
    return z


def test_complex_and_real_numbers():
    check(
        {
            "products": lambda x, y: [(z := torch.view_as_complex(x)) * y, y * z, z / y, z * y[0], z * y.long()],
            "sums": lambda x, y: [torch.view_as_complex(x) + y, y - torch.view_as_complex(x)],
            "circle": lambda x, y: [torch.exp(1j * y), torch.polar(y.abs(), y), torch.complex(y, y * 2)],
            "double": lambda x, y: torch.polar(torch.ones_like(y.double()), y.double()).to(torch.complex64),
            "types": lambda x, y: [y.to(torch.complex64), y.to(torch.complex128)],
            "together": lambda x, y: [torch.cat([torch.view_as_complex(x), y + 0j], -1)],
            "either": lambda x, y: torch.where(y > 0, torch.view_as_complex(x), y),
        },
        numbers(2, 3, 8, 2),
        numbers(2, 3, 8, seed=1),
    )


class Rotated(torch.nn.Module):
    """Turns pairs of numbers by angles that grow with the place."""

    def __init__(self, width=8, places=16):
        super().__init__()
        rates = 1 / 100 ** (torch.arange(0, width, 2) / width)
        angles = torch.outer(torch.arange(places).float(), rates)
        self.register_buffer("rates", rates)
        self.turns = torch.polar(torch.ones_like(angles), angles)

    def turn(self, x, turns):
        """x [batch, length, heads, width] by complex numbers [length, width / 2], or one set of such for each of the batch."""
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns.unsqueeze(-2)).flatten(3).type_as(x)


class Sliced(Rotated):
    """By the first of a table's rows, as Llama does."""

    def forward(self, x):
        return self.turn(x, self.turns[: x.shape[1]])


class Computed(Rotated):
    """By angles that are computed of the places."""

    def forward(self, x, places):
        angles = places[..., None].float() * self.rates
        return self.turn(x, torch.polar(torch.ones_like(angles), angles))


class Divided(Rotated):
    """By parts of a table for each of three axes, as Qwen-Image does."""

    def forward(self, x):
        frame, row, column = self.turns.split([1, 1, 2], dim=1)
        frame = frame[:1].view(1, 1, 1, -1).expand(1, 2, 3, -1)
        row = torch.cat([row[-1:], row[:1]]).view(1, 2, 1, -1).expand(1, 2, 3, -1)
        column = column[:3].view(1, 1, 3, -1).expand(1, 2, 3, -1)
        return self.turn(x, torch.cat([frame, row, column], dim=-1).reshape(6, -1).clone().contiguous())


class Looked(Rotated):
    """By rows of several tables that are looked up, as Z-Image does."""

    def forward(self, x, places):
        tables = [self.turns[:, :1], self.turns[:, 1:]]
        return self.turn(x, torch.cat([table[places[..., axis]] for axis, table in enumerate(tables)], dim=-1))


@pytest.mark.parametrize("kind", [Sliced, Computed, Divided, Looked], ids=lambda each: each.__name__)
def test_rotary_embeddings_with_complex_numbers(kind):
    places = {Computed: [torch.arange(6)], Looked: [torch.arange(24).reshape(2, 6, 2) % 16]}.get(kind, [])
    given = [numbers(2, 6, 3, 8), *places]
    module = kind()
    free = {"x": {1: "length"}} if kind is Sliced else None
    model = graphc.from_torch(module, tuple(given), dynamic_shapes=free, threads=1)
    for x in (given[0], numbers(2, 9, 3, 8)) if free else (given[0],):
        found = model.run(
            dict(
                zip((each.name for each in model.inputs), (x.numpy(), *(each.numpy() for each in places)), strict=True)
            )
        )
        np.testing.assert_allclose(found["output"], module(x, *places), rtol=1e-5, atol=1e-6)


def test_writing_into_the_data_of_a_tensor_is_seen():
    class Written(torch.nn.Module):
        def forward(self, x):
            made = x.new_zeros(2, 6)
            made.data[:, 2:].copy_(x)
            return made + 1

    x = numbers(2, 4)
    found = graphc.from_torch(Written(), x, threads=1).run(x=x.numpy())
    np.testing.assert_array_equal(found["output"], Written()(x))


ATTENTIONS = {
    "rows alone": ((5, 4), (7, 4), (7, 3), None, {}),
    "a batch alone": ((2, 5, 4), (2, 7, 4), (2, 7, 3), (5, 7), {}),
    "heads in windows": ((2, 3, 2, 5, 4), (2, 3, 2, 7, 4), (2, 3, 2, 7, 4), None, {"scale": 0.3}),
    "a mask for each window": ((2, 3, 2, 5, 4), (2, 3, 2, 5, 4), (2, 3, 2, 5, 4), (3, 1, 1, 5), {}),
    "a batch that is repeated": ((2, 3, 5, 4), (1, 3, 7, 4), (3, 7, 4), (2, 1, 5, 7), {}),
    "one head for all": ((2, 3, 5, 4), (2, 1, 5, 4), (2, 1, 5, 4), None, {"is_causal": True}),
    "groups that are none": ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4), None, {"enable_gqa": True}),
    "groups": ((2, 6, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4), (5, 7), {"enable_gqa": True}),
}


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_attention_of_any_rank(kind):
    *shapes, mask, settings = ATTENTIONS[kind]
    given = [numbers(*shape, seed=index) for index, shape in enumerate(shapes)]
    masks = [] if mask is None else [numbers(*mask), numbers(*mask, seed=5) > -1]
    for each in masks or [None]:
        tensors = given if each is None else [*given, each]
        check({"attention": lambda *all: F.scaled_dot_product_attention(*all, **settings)}, *tensors)


def test_attention_whose_sizes_are_free():
    q, k, v = (numbers(2, 3, 4, rows, 8, seed=rows) for rows in (5, 6, 6))
    free = ({0: "batch", 1: "windows", 3: "queries"}, *([{0: "batch", 1: "windows", 3: "keys"}] * 2))
    others = [[numbers(1, 5, 4, rows, 8) for rows in (3, 9, 9)]]
    check({"attention": F.scaled_dot_product_attention}, q, k, v, free=free, others=others)
