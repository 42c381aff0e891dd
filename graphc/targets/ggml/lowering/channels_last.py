"""Images whose channels lie one after the other, where convolutions of single channels are, or enough of 1 x 1 and 3 x 3.

Around these a program's images are held as [N, H, W, C]: vectors of channels are full however small an image is, a convolution
of 1 x 1 is a product with the rows of all pixels, and zeros on one side of an image cost nothing. Which values are held so is
decided for the graph: those of the convolutions, and what is connected to them by calls that take either order. Where the order
changes, there is a copy, or none where the model had one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from graphc.ir.types import F32
from graphc.kernels.use import KernelUse
from graphc.shapes import Dim, integer, product, symbols
from graphc.targets.ggml.lowering.lines import FEW_PIXELS, is_activation, kernel_of_shape
from graphc.targets.ggml.program.calls import CALLS
from graphc.targets.ggml.program.composites.activations import ACTIVATIONS
from graphc.targets.ggml.program.composites.arithmetic import OVER_ROWS
from graphc.targets.ggml.program.composites.images import FIRST, LAST, NEAREST
from graphc.targets.ggml.program.program import HOST, Call, Program
from graphc.targets.ggml.program.rules import RESHAPES, VIEWS
from graphc.targets.ggml.program.tensor import Arg, Tensor

if TYPE_CHECKING:
    from graphc.ops.pool import MaxPool  # a program that has none starts without it

LEAST_CHANNELS = 16
USUAL_SIZE = 512
"""What a size that is free is taken to be where the time of copies is compared with that of convolutions: both grow with it."""

WORTH_A_COPY = 200
"""Multiplications of convolutions as products that save the time of copying an element."""

MOST_PLACES = 64
"""Places of a kernel whose windows are read with channels last, as `own/convolution.c` does."""

MOST_OF_LINES = 1024
"""Elements of a kernel, of all its places and channels, whose windows are read where they lie in lines of more than
`FEW_PIXELS`, as `own/convolution.c` does."""

WINDOWS = 16
"""Multiplications of convolutions of 3 x 3 by Winograd's that save the time which one of a product saves: they are fast in either
order."""

COPIES = ("graphc_copy", "ggml_cont")
PADS = ("graphc_pad", "ggml_pad_ext")
PRODUCTS = ("graphc_mul", "ggml_mul")
SUMS = ("graphc_add", "ggml_add", *PRODUCTS)

Key = tuple[int, int, int]


def with_channels_last(program: Program) -> Program:
    """The same program of composites, with images held so where that is faster. Its list of kernels may get more of them."""
    calls = program.calls
    if any(call.function == HOST for call in calls) or not any(map(_may_be_held_so, calls)):
        return program
    layouts = _Layouts(program)
    return layouts.program() if layouts.last else program


def _is_each_channel(call: Call) -> bool:
    channels = call.result.ne[2]
    return (
        call.function == "graphc_conv_2d_dw"
        and _adds_images(call)
        and isinstance(channels, int)
        and channels >= LEAST_CHANNELS
    )


def _sums(call: Call) -> list[Tensor]:
    """What is added to a convolution besides its bias."""
    return [arg for arg in call.args[10:] if isinstance(arg, Tensor)]


def _adds_images(call: Call) -> bool:
    """True if what is added to a convolution besides its bias is as large as the result."""
    return all(each.ne == call.result.ne for each in _sums(call))


def _has_groups(call: Call) -> bool:
    """True if the kernels of a convolution meet some of the image's channels."""
    return _tensor(call.args[0]).ne[2] != _tensor(call.args[1]).ne[2]


def _is_in_groups(call: Call) -> bool:
    """True for a convolution in groups of channels, to which nothing but a vector is added."""
    if call.function != "graphc_conv_2d" or len(call.args) != 11 or not _has_groups(call):
        return False
    kernel, _, bias = call.args[:3]
    return _tensor(kernel).contiguous and (bias is None or (isinstance(bias, Tensor) and bias.contiguous))


def _is_point(call: Call) -> bool:
    """True for a convolution of 1 x 1 to which whole images may be added."""
    if call.function != "graphc_conv_2d" or _has_groups(call):
        return False
    kernel, _, bias, *settings = call.args[:9]
    vector = bias is None or (isinstance(bias, Tensor) and bias.contiguous)
    weight = isinstance(kernel, Tensor) and kernel.ne[:2] == (1, 1) and kernel.contiguous and kernel.weight >= 0
    return weight and vector and _adds_images(call) and settings == [1, 1, 0, 0, 1, 1]


def _is_part(call: Call) -> bool:
    """True for a view of some channels of images."""
    if call.function != "ggml_view_4d":
        return False
    image, result, offset = _tensor(call.args[0]), call.result, call.args[-1]
    whole = (image.ne[0], image.ne[1], image.ne[3]) == (result.ne[0], result.ne[1], result.ne[3])
    return (
        whole
        and image.contiguous
        and image.nb == result.nb
        and isinstance(offset, int)
        and isinstance(plane := image.nb[2], int)
        and offset % plane == 0
    )


def _makes_it(call: Call) -> bool:
    """True for a convolution of planes that can have its result's channels last, if Winograd's is not faster."""
    if call.function != "graphc_conv_2d" or not _adds_images(call) or _is_point(call) or _has_groups(call):
        return False
    kernel, _, bias, *strides = call.args[:5]
    return (strides != [1, 1] or _tensor(kernel).ne[:2] != (3, 3)) and all(
        isinstance(each, Tensor) and each.contiguous for each in (kernel, bias) if each is not None
    )


def _read_so(call: Call) -> list[Tensor]:
    """What a call whose result has its channels last reads so: all, but the image of a convolution that may lie in planes."""
    return _sums(call) if _makes_it(call) else _tensors(call)


def _pads_pixels(call: Call) -> bool:
    """True if a call puts zeros around the pixels of images."""
    return call.function in PADS and call.args[5:] == (0, 0, 0, 0)


def _reads_windows(call: Call) -> bool:
    """True for a convolution of so small kernels that its windows are read where they lie with channels last."""
    return product(_tensor(call.args[0]).ne[:2]) <= MOST_PLACES and call.args[7:9] == (1, 1)


def _has_few_channels(call: Call) -> bool:
    """True for such a convolution of an image of colours, for which a copy of that costs less than windows of planes."""
    channels = _tensor(call.args[1]).ne[2]
    return isinstance(channels, int) and channels < LEAST_CHANNELS and _reads_windows(call)


def _is_window(call: Call) -> bool:
    """True for a convolution of 3 x 3 that is fast with channels last: one that adds a vector and whole images."""
    if call.function != "graphc_conv_2d" or not _adds_images(call) or _has_groups(call):
        return False
    kernel, bias, strides = _tensor(call.args[0]), call.args[2], call.args[3:5]
    *size, inner, outer = kernel.ne
    if kernel.weight < 0 or size != [3, 3] or strides != (1, 1):
        return False
    vector = bias is None or (isinstance(bias, Tensor) and bias.contiguous)
    return vector and kernel.contiguous and min(inner, outer) >= LEAST_CHANNELS


def _is_along_lines(call: Call) -> bool:
    """True for a convolution of long lines whose windows are read where they lie with channels last, and copied in planes."""
    if not _makes_it(call) or call.args[8] != 1:
        return False
    (across, down, inner, _), pixels = _tensor(call.args[0]).ne, product(call.result.ne[:2])
    long = isinstance(pixels, int) and pixels > FEW_PIXELS and 1 in call.result.ne[:2]
    return long and across > 1 and down == 1 and inner >= LEAST_CHANNELS and across * inner <= MOST_OF_LINES


def _may_be_held_so(call: Call) -> bool:
    """True for a convolution around which images may be held with their channels last."""
    return _is_each_channel(call) or _may_be_worth_it(call)


def _may_be_worth_it(call: Call) -> bool:
    """True for a convolution that takes less time with channels last."""
    return _is_point(call) or _is_window(call) or _is_along_lines(call)


def _multiplications(call: Call) -> Dim:
    """Those of a convolution that takes less time then, as a product of rows of pixels; 0 of another call. With dilations, it is
    Winograd's with channels last alone."""
    if call.function != "graphc_conv_2d":
        return 0
    found = product(_tensor(call.args[0]).ne[:3]) * call.result.size
    return found // WINDOWS if _is_window(call) and call.args[7:9] == (1, 1) else found


def _key(tensor: Tensor) -> Key:
    return tensor.call, tensor.weight, tensor.input


def _channels(tensor: Tensor) -> bool:
    """True if it is a number for each channel, or an image of a pixel."""
    return tensor.ne[:2] == (1, 1)


class _Layouts:
    """A program while it is made of another."""

    def __init__(self, program: Program) -> None:
        self.old = program
        self.new = replace(program, calls=[], outputs=[])
        self.made: dict[tuple[Key, bool], Tensor] = {}
        """What was made of each value: with the channels last, or as it was."""
        self.readers: dict[int, list[int]] = {}
        for index, call in enumerate(program.calls):
            for arg in _tensors(call):
                self.readers.setdefault(arg.call, []).append(index)
        self.read_out = {output.tensor.call for output in program.outputs}
        self.last: set[int] = set()
        self.without_copies = self._held_without_copies()
        self.last = self._chosen()
        self.means = {
            index: found for index in range(len(program.calls)) if (found := self._mean_of(index)) is not None
        }

    def _held_without_copies(self) -> set[int]:
        """The calls whose results can be held with the channels last, and so can all that they are made of, from convolutions
        on that read planes."""
        found: set[int] = set()
        for index, call in enumerate(self.old.calls):
            read = {arg.call for arg in _read_so(call) if arg.weight < 0}
            if read <= found and (_makes_it(call) or (read and self._takes_either(index))):
                found.add(index)
        return found

    def _takes_either(self, index: int) -> bool:
        """True if a call gives the same with the channels of its images last."""
        call = self.old.calls[index]
        result = call.result
        if call.kernel >= 0:
            pooled = self._is_pool(call) and all(map(self._takes_either, self.readers.get(index, ())))
            return pooled or (is_activation(self.old, call) and result.rank == 4)
        if result.type != "F32":
            return False
        if any(is_kind(call) for is_kind in (_is_each_channel, _is_in_groups, _is_point, _is_window, _is_part)):
            return True
        if call.function == "graphc_concat":
            return all(each.rank == 4 for each in _tensors(call))
        first = call.args[0] if call.args else None
        if not isinstance(first, Tensor):
            return False
        if call.function == "ggml_permute":
            return call.args[1:] == FIRST and first.contiguous
        if call.function in COPIES:
            return self._is_last(first) or self._is_of_parts(first)
        if call.function in RESHAPES:
            return first.ne == result.ne
        if call.function == "graphc_upscale":
            return first.ne[2:] == result.ne[2:]
        if call.function == "graphc_average_pool":
            return True
        if call.function in PADS:
            return _pads_pixels(call) and first.rank == 4
        if call.function in SUMS:
            left, right = _tensors(call)
            return left.ne == result.ne and (
                right.ne == result.ne
                or (_channels(right) and right.ne[2] == result.ne[2] and right.ne[3] in (1, result.ne[3]))
            )
        return call.function in (*ACTIVATIONS, "ggml_scale") and all(each.ne == result.ne for each in _tensors(call))

    def _is_pool(self, call: Call) -> bool:
        """True if a call computes the largest elements of images' windows."""
        use = self.old.kernels[call.kernel]
        return type(use.op).__name__ == "MaxPool" and use.dtype == F32 and len(use.shape) == 4

    def _is_of_them(self, index: int) -> bool:
        """True if a call's result is held so if what is connected to it is."""
        return self._takes_either(index) or _makes_it(self.old.calls[index])

    def _is_last(self, tensor: Tensor) -> bool:
        """True if it is an image whose channels the model has brought to their place from the innermost axis."""
        call = self.old.calls[tensor.call] if tensor.call >= 0 else None
        return call is not None and call.function == "ggml_permute" and call.args[1:] == FIRST

    def _is_of_parts(self, tensor: Tensor) -> bool:
        """True if it is some channels of images."""
        call = self.old.calls[tensor.call] if tensor.call >= 0 else None
        return call is not None and _is_part(call)

    def _chosen(self) -> set[int]:
        """The calls whose results are held with the channels last: around convolutions of single channels, and of 1 x 1 and 3 x 3
        if these are worth it."""
        found = self._connected(index for index, call in enumerate(self.old.calls) if _is_each_channel(call))
        seeds = {index for index, call in enumerate(self.old.calls) if _may_be_worth_it(call)} - found
        while seeds:
            more = self._connected([seeds.pop()])
            seeds -= more
            if self._is_worth_copies(more):
                found |= more
        return found

    def _is_worth_copies(self, held: set[int]) -> bool:
        """True if convolutions that are products then save more time than what changes its order takes."""
        products = sum(_multiplications(self.old.calls[index]) for index in held)
        read = {
            _key(arg): arg.size
            for index in held
            for arg in _read_so(self.old.calls[index])
            if arg.weight < 0 and arg.call not in held
        }
        written = [
            self.old.calls[index].result.size
            for index in held
            if index in self.read_out
            or any(each not in held and not self._is_for_means(each) for each in self.readers.get(index, ()))
        ]
        copied = sum([*read.values(), *written])
        saved = products - WORTH_A_COPY * copied
        usual = {name: max(atom.low, min(USUAL_SIZE, atom.high or USUAL_SIZE)) for name, atom in symbols(saved).items()}
        return integer(saved, usual) >= 0

    def _connected(self, calls: Iterable[int]) -> set[int]:
        """These calls, and those that take either order around them."""
        found: set[int] = set()
        waiting = list(calls)
        while waiting:
            index = waiting.pop()
            call = self.old.calls[index]
            if index in found:
                continue
            found.add(index)
            if _makes_it(call):
                image = _tensor(call.args[1])
                waiting += [image.call] if image.call in self.without_copies and _reads_windows(call) else []
                read = _sums(call)
            else:
                read = [self._unpadded(arg)[0] if _is_each_channel(call) else arg for arg in _tensors(call)]
            waiting += [arg.call for arg in read if arg.call >= 0 and self._is_of_them(arg.call)]
            waiting += filter(self._is_of_them, self.readers.get(index, ()))
        return found

    def _is_expansion(self, index: int) -> bool:
        """True if a call is a convolution of 1 x 1 for one of single channels alone, which can be one step with it."""
        call = self.old.calls[index]
        readers = self.readers.get(index, [])
        if len(readers) == 1 and self._is_pad(readers[0]):
            readers = self.readers[readers[0]]
        return (
            index in self.last
            and index not in self.read_out
            and _is_point(call)
            and len(call.args) == 11
            and not self._is_gate(_tensor(call.args[1]).call)
            and [_is_each_channel(self.old.calls[each]) and not _sums(self.old.calls[each]) for each in readers]
            == [True]
        )

    def _is_gate(self, index: int) -> bool:
        """True if a call multiplies each channel of an image with a number, for a convolution of 1 x 1 alone, which does so."""
        if index not in self.last or index in self.read_out or self.old.calls[index].function not in PRODUCTS:
            return False
        call = self.old.calls[index]
        points = [self.old.calls[each] for each in self.readers.get(index, ())]
        return _channels(_tensor(call.args[1])) and [
            _is_point(each) and [arg.call for arg in _tensors(each)].index(index) == 1 for each in points
        ] == [True]

    def _is_pad(self, index: int) -> bool:
        """True if a call puts zeros around images for convolutions alone that need them not."""
        call = self.old.calls[index] if index >= 0 else None
        if call is None or not _pads_pixels(call) or index in self.read_out:
            return False
        readers = self.readers.get(index, [])
        added = {arg.call for each in readers for arg in _sums(self.old.calls[each])}
        return index not in added and all(
            _is_each_channel(self.old.calls[each])
            or (each in self.last and (_makes_it(self.old.calls[each]) or _is_in_groups(self.old.calls[each])))
            for each in readers
        )

    def _unpadded(self, image: Tensor) -> tuple[Tensor, tuple[int, int, int, int]]:
        """An image without zeros that are put around it, and how many, before and behind each row and column."""
        if not self._is_pad(image.call):
            return image, (0, 0, 0, 0)
        inner, before0, behind0, before1, behind1 = self.old.calls[image.call].args[:5]
        return _tensor(inner), (_whole(before0), _whole(behind0), _whole(before1), _whole(behind1))

    def _is_for_means(self, index: int) -> bool:
        """True for a reshape of images of which only means, or sums, of planes are taken: they are the same in either order."""
        call = self.old.calls[index]
        if call.function not in RESHAPES:
            return False
        image, readers = _tensor(call.args[0]), self.readers.get(index, [])
        planes = call.result.ne[0] == image.ne[0] * image.ne[1] and image.rank == 4
        return planes and len(readers) > 0 and all(self.old.calls[each].function in OVER_ROWS for each in readers)

    def _mean_of(self, index: int) -> Tensor | None:
        """The image held with channels last of whose planes a call computes the means, or the sums."""
        call = self.old.calls[index]
        source = call.args[0] if call.function in OVER_ROWS else None
        reshape = self.old.calls[source.call] if isinstance(source, Tensor) and source.call >= 0 else None
        if reshape is None or reshape.function not in RESHAPES:
            return None
        image = _tensor(reshape.args[0])
        planes = reshape.result.ne[0] == image.ne[0] * image.ne[1]
        return image if image.call in self.last and planes and image.rank == 4 else None

    def _is_of_means(self, index: int) -> bool:
        """True for a reshape of what only means read, which have it as it lies."""
        readers = self.readers.get(index, [])
        reshape = self.old.calls[index].function in RESHAPES and index not in self.read_out
        return reshape and len(readers) > 0 and all(each in self.means for each in readers)

    def program(self) -> Program:
        """The program."""
        for index, call in enumerate(self.old.calls):
            if any(is_part(index) for is_part in (self._is_pad, self._is_of_means, self._is_gate, self._is_expansion)):
                continue
            if index in self.means:
                self._mean(index, call)
            elif index in self.last:
                self.made[(index, -1, -1), True] = self._with_channels_last(call)
            elif self._is_there(index):
                self.made[(index, -1, -1), False] = self._last(_tensor(call.args[0]), call)
            elif call.function in COPIES and self._held_so(_tensor(call.args[0]), call.result):
                self.made[(index, -1, -1), False] = self._as_it_was(_tensor(call.args[0]), call)
            else:
                args = [self._as_it_was(arg, call) if isinstance(arg, Tensor) else arg for arg in call.args]
                self.made[(index, -1, -1), False] = self._add(call, call.function, args, call.result, call.kernel)
        for output in self.old.outputs:
            near = self.old.calls[max(output.tensor.call, 0)]
            self.new.outputs.append(replace(output, tensor=self._as_it_was(output.tensor, near)))
        return self.new

    def _is_there(self, index: int) -> bool:
        """True if a call brings channels where they already are, and nothing views its result, which lies together then."""
        call = self.old.calls[index]
        views = any(self.old.calls[each].function in VIEWS for each in self.readers.get(index, ()))
        return (
            call.function == "ggml_permute"
            and call.args[1:] == LAST
            and _tensor(call.args[0]).call in self.last
            and not views
        )

    def _held_so(self, tensor: Tensor, result: Tensor) -> bool:
        """True if a copy is of what already lies as it shall."""
        found = self.made.get((_key(tensor), False))
        return found is not None and (found.ne, found.nb) == (result.ne, result.nb)

    def _add(self, near: Call, function: str, args: list[Arg], like: Tensor | None = None, kernel: int = -1) -> Tensor:
        """The result of one more call, in another one's module. `like` is one of the same type and rank. Reshapes of reshapes are
        one, or none."""
        source = args[0] if function in RESHAPES else None
        if isinstance(source, Tensor) and source.call >= 0 and self.new.calls[source.call].function in RESHAPES:
            source = _tensor(self.new.calls[source.call].args[0])
            args = [source, *args[1:]]
        found = CALLS[function](*args) if kernel < 0 else like
        assert found is not None
        if like is not None:
            rank = like.rank
        else:
            rank = RESHAPES.index(function) + 1 if source else max(arg.rank for arg in args if isinstance(arg, Tensor))
        if isinstance(source, Tensor) and (source.ne, source.nb) == (found.ne, found.nb):
            return replace(source, rank=rank)
        tensor = Tensor(found.type, found.ne, found.nb, rank, call=len(self.new.calls))
        self.new.calls.append(replace(near, function=function, args=tuple(args), result=tensor, kernel=kernel))
        return tensor

    def _as_it_was(self, tensor: Tensor, near: Call) -> Tensor:
        """A value in the order that the program had."""
        key = _key(tensor)
        if tensor.call < 0:
            return tensor
        if (key, False) not in self.made:
            held = self.made[key, True]
            if _channels(tensor):
                found = self._add(near, "ggml_reshape_4d", [held, *tensor.ne])
            else:
                found = self._add(near, "graphc_copy", [self._add(near, "ggml_permute", [held, *FIRST])])
            self.made[key, False] = found
        return replace(self.made[key, False], rank=tensor.rank)

    def _last(self, tensor: Tensor, near: Call) -> Tensor:
        """A value with its channels last."""
        key = _key(tensor)
        if (key, True) not in self.made:
            held = self._as_it_was(tensor, near)
            channels, pixels = held.ne[2], held.ne[:2]
            if _channels(held) and held.contiguous:
                found = self._add(near, "ggml_reshape_4d", [held, channels, *pixels, held.ne[3]])
            else:
                found = self._add(near, "graphc_copy", [self._add(near, "ggml_permute", [held, *LAST])])
            self.made[key, True] = found
        return replace(self.made[key, True], rank=4)

    def _mean(self, index: int, call: Call) -> None:
        image = self._last(self.means[index], call)
        channels, *pixels, count = image.ne
        rows = self._add(call, "ggml_reshape_3d", [image, channels, pixels[0] * pixels[1], count])
        found = self._add(call, OVER_ROWS[call.function], [rows])
        self.made[(index, -1, -1), False] = self._add(call, "ggml_reshape_4d", [found, *call.result.ne])

    def _with_channels_last(self, call: Call) -> Tensor:
        if call.function in ("graphc_conv_2d", "graphc_conv_2d_dw"):
            return self._point(call) if _is_point(call) else self._convolution(call)
        if call.function == "ggml_permute":
            return self._as_it_was(_tensor(call.args[0]), call)
        if call.function in (*COPIES, *RESHAPES):
            return self._last(_tensor(call.args[0]), call)
        if call.kernel >= 0:
            return self._activation(call) if is_activation(self.old, call) else self._pool(call)
        if _is_part(call):
            return self._part(call)
        args = [self._last(arg, call) if isinstance(arg, Tensor) else arg for arg in call.args]
        if call.function == "graphc_concat":
            args[0] = LAST[_whole(call.args[0])]
        elif call.function == "graphc_upscale":
            width, height, channels, count = call.result.ne
            args[1:] = channels, width, height, count, call.args[5], True
        elif call.function == "graphc_average_pool":
            args[-1] = True
        elif call.function in PADS:
            args[1:] = 0, 0, *call.args[1:5], 0, 0
        return self._add(call, call.function, args)

    def _part(self, call: Call) -> Tensor:
        """Some channels of images: copied, for what reads them wants images that lie together."""
        image, offset = _tensor(call.args[0]), call.args[-1]
        held = self._last(image, call)
        width, height, channels, count = call.result.ne
        first = _whole(offset) // _whole(image.nb[2]) * _whole(held.nb[0])
        part = self._add(call, "ggml_view_4d", [held, channels, width, height, count, *held.nb[1:], first])
        return self._add(call, "graphc_copy", [part])

    def _activation(self, call: Call) -> Tensor:
        """An activation that a kernel computes."""
        image = self._last(_tensor(call.args[0]), call)
        return kernel_of_shape(self.new, call, image.ne[::-1], image)

    def _pool(self, call: Call) -> Tensor:
        """The largest elements of windows, as of planes of which each line of channels stays."""
        use = self.old.kernels[call.kernel]
        batch, channels, *size = use.shape
        op = cast("MaxPool", use.op)
        op = replace(
            op,
            kernel=(*op.kernel, 1),
            strides=(*op.strides, 1),
            dilations=(*op.dilations, 1),
            pads_before=(*op.pads_before, 0),
            pads_after=(*op.pads_after, 0),
        )
        image = self._last(_tensor(call.args[0]), call)
        shape = (batch, 1, *use.inputs[0][1][2:], channels)
        return self.new.call_kernel(
            KernelUse(op, ((F32, shape),), F32, (batch, 1, *size, channels)), [image], call.scope, call.source
        )

    def _vector(self, bias: Arg, call: Call) -> Tensor | None:
        """A number for each channel as a vector."""
        if not isinstance(bias, Tensor):
            return None
        bias = self._as_it_was(bias, call)
        return bias if bias.ne[1:] == (1, 1, 1) else self._add(call, "ggml_reshape_1d", [bias, bias.size])

    def _settings(self, call: Call) -> tuple[Tensor, list[Arg]]:
        """The image that a convolution reads, without zeros around it, and its settings with pads before and behind."""
        s0, s1, p0, p1, d0, d1 = map(_whole, call.args[3:9])
        image, (before0, behind0, before1, behind1) = self._unpadded(_tensor(call.args[1]))
        return image, [s0, s1, p0 + before0, p1 + before1, p0 + behind0, p1 + behind1, d0, d1]

    def _convolution(self, call: Call) -> Tensor:
        image, settings = self._settings(call)
        if image.call >= 0 and self._is_expansion(image.call):
            return self._expanded(self.old.calls[image.call], call, settings)
        if image.call in self.last or not _makes_it(call) or _has_few_channels(call):
            image = self._last(image, call)
        else:
            image = self._add(call, "ggml_permute", [self._as_it_was(image, call), *LAST])
        kernel, bias = self._as_it_was(_tensor(call.args[0]), call), self._vector(call.args[2], call)
        if kernel.ne[2] == 1 and kernel.ne[3] != image.ne[0]:  # each channel as often as there are kernels for it
            image = self._add(call, "graphc_upscale", [image, kernel.ne[3], *image.ne[1:], NEAREST, True])
        direct, activation = call.args[9:11] if call.function == "graphc_conv_2d" else (False, call.args[9])
        sums = (self._last(each, call) for each in _sums(call))
        return self._add(call, "graphc_conv_2d_last", [kernel, image, bias, *settings, direct, activation, *sums])

    def _expanded(self, point: Call, call: Call, settings: list[Arg]) -> Tensor:
        """A convolution of single channels of what one of 1 x 1 makes."""
        kernel, image = map(_tensor, point.args[:2])
        matrix = self._add(point, "ggml_reshape_2d", [kernel, *kernel.ne[2:]])
        of_point = [matrix, self._last(image, point), self._vector(point.args[2], point), point.args[10]]
        each, bias = self._as_it_was(_tensor(call.args[0]), call), self._vector(call.args[2], call)
        return self._add(call, "graphc_expanded_conv_2d", [*of_point, each, bias, *settings, call.args[9]])

    def _point(self, call: Call) -> Tensor:
        kernel, image, bias = _tensor(call.args[0]), _tensor(call.args[1]), call.args[2]
        activation, sums = call.args[10], call.args[11:]
        width, height, channels, count = call.result.ne

        def rows(arg: Arg) -> Tensor:
            held = self._last(_tensor(arg), call)
            return self._add(call, "ggml_reshape_3d", [held, held.ne[0], width * height, count])

        matrix = self._add(call, "ggml_reshape_2d", [kernel, *kernel.ne[2:]])
        vector = self._vector(bias, call)
        added: list[Arg] = [] if vector is None else [vector]
        function, gates = "graphc_linear", list[Tensor]()
        if self._is_gate(image.call):
            image, gate = _tensors(self.old.calls[image.call])
            held = self._last(gate, call)
            function, gates = (
                "graphc_gated_linear",
                [self._add(call, "ggml_reshape_3d", [held, held.ne[0], 1, held.ne[3]])],
            )
        found = self._add(call, function, [matrix, rows(image), *gates, activation, *added, *map(rows, sums)])
        return self._add(call, "ggml_reshape_4d", [found, channels, width, height, count])


def _tensor(arg: Arg) -> Tensor:
    assert isinstance(arg, Tensor)
    return arg


def _whole(arg: Arg) -> int:
    assert isinstance(arg, int)
    return arg


def _tensors(call: Call) -> list[Tensor]:
    return [arg for arg in call.args if isinstance(arg, Tensor)]
