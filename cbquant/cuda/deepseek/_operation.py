"""A call of operators: arrays of the device or of the host, as the C module wants to see them, and the results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from cbquant._arguments import DTYPES as FLOATS
from cbquant._arguments import check_integers_out, check_out, empty, float_dtype_name
from cbquant.cuda import _driver, _operand, _stream, _workspace
from cbquant.cuda._array import DeviceArray, itemsize
from cbquant.cuda._dequant import float_type
from cbquant.cuda._error import copy_while_capturing, new_while_capturing
from cbquant.cuda._native import Described, Place
from cbquant.cuda._operand import Operand, is_on_device
from cbquant.deepseek import _inputs
from cbquant.deepseek._inputs import Sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Source:
    """Memory that views look at: an operand on the device, or a place in the workspace."""

    operand: Operand | None = None
    place: int = -1
    host: NDArray[Any] | None = None  # what is copied there first

    def located(self, places: Sequence[Place]) -> Place | tuple[None, int]:
        if self.operand is not None:
            return self.operand.memory, self.operand.offset
        return places[self.place] if places else (None, 0)


@dataclass(frozen=True)
class View:
    """Some elements of memory as an array of up to four axes; strides are in elements."""

    source: Source
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def add_axis(self, axis: int) -> View:
        """An axis of length 1."""
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(axis, 1)
        strides.insert(axis, 0)
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def transpose(self, *axes: int) -> View:
        return replace(self, shape=tuple(self.shape[a] for a in axes), strides=tuple(self.strides[a] for a in axes))

    def broadcast(self, *shape: int) -> View:
        """Axes of length 1 as long as `shape` says."""
        strides = tuple(0 if size == 1 else s for size, s in zip(self.shape, self.strides, strict=True))
        return replace(self, shape=shape, strides=strides)

    def with_axes(self, count: int) -> View:
        """As many axes: those of length 1 in front where there are fewer; where there are more, the first ones become
        one. (The caller has seen to it that they can: `Operation.floats` with `axes`.)"""
        shape, strides = self.shape, self.strides
        while len(shape) < count:
            shape, strides = (1, *shape), (0, *strides)
        extra = len(shape) - count
        if extra:
            shape = (math.prod(shape[: extra + 1]), *shape[extra + 1 :])
            strides = strides[extra:]
        return replace(self, shape=shape, strides=strides)

    def described(self, places: Sequence[Place]) -> Described:
        return (*self.source.located(places), self.dtype, self.shape, self.strides)


@dataclass
class Result:
    view: View
    array: Any  # what the caller gets
    host: NDArray[Any] | None = None  # it, with bfloat16 as uint16
    like: Any = None  # the array in whose library a DeviceArray is handed over


@dataclass
class Step:
    operator: str
    views: tuple[View | None, ...]
    numbers: tuple[float, ...]

    def described(self, places: Sequence[Place]) -> tuple[Described | None, ...]:
        return tuple(None if v is None else v.described(places) for v in self.views)


@dataclass
class Operation:
    """One call of a function of cbquant.cuda.deepseek.

    Arguments go through `floats` or `integers`, results come from `result`; `step` says what is to run, and `finish`
    runs it. Nothing is written before that.
    """

    name: str
    device: int
    stream: int
    sizes: Sizes = field(default_factory=Sizes)

    @classmethod
    def of(cls, name: str, stream: Any, *arrays: Any) -> Operation:
        """On the device of the first array that is on one, else on device 0."""
        device = next((_device_of(name, a) for a in arrays if is_on_device(a)), 0)
        return cls(name, device, _stream.choose(stream, device, *arrays))

    def __post_init__(self) -> None:
        self.native = _driver.ready(self.name, self.device)
        self._is_capturing = self.native.is_capturing(self.device, self.stream)
        self._places: list[int] = []
        self._uploads: list[Source] = []
        self._inputs: dict[str, View] = {}
        self._results: list[Result] = []
        self._steps: list[Step] = []

    def floats(self, x: Any, name: str, dims: str | None = None, axes: int = 4) -> View:
        """float32, float16 or bfloat16, of a shape as `Sizes.check` has them; on the host any strides, which are
        copied. An array of more than `axes` axes must let the first ones become one."""
        if is_on_device(x):
            view = self._taken(x, name)
            view = replace(view, dtype=float_type(view.dtype))
            if view.dtype not in FLOATS:
                raise TypeError(f"{name}: expected {', '.join(FLOATS)}, got {view.dtype}")
        else:
            values = _inputs.floats(x, name)
            copy = np.asarray(_inputs.bits(values), order="C")  # ascontiguousarray would give a scalar an axis
            view = self._uploaded(copy, name, _inputs.dtype_of(values))
        if dims is not None:
            self.sizes.check(name, dims, view.shape)
        return self._input(name, _with_mergeable_axes(view, name, axes))

    def integers(self, x: Any, name: str, dims: str | None = None, more: Sequence[str] = ()) -> View:
        """int32 or int64, and the dtypes of `more`; lists and arrays of the host become int64, or float64."""
        if is_on_device(x):
            view = self._taken(x, name)
            if view.dtype not in ("int32", "int64", *more):
                raise TypeError(f"{name}: expected {', '.join(('int32', 'int64', *more))}, got {view.dtype}")
        else:
            values = np.asarray(x)
            kinds = "iuf" if more else "iu"
            if values.dtype.kind not in kinds and values.size:
                raise TypeError(f"{name}: expected integers{' or real numbers' if more else ''}, got {values.dtype}")
            dtype = "float64" if more else "int64"
            view = self._uploaded(np.asarray(values, dtype, order="C"), name, dtype)
        if dims is not None:
            self.sizes.check(name, dims, view.shape)
        return self._input(name, view)

    def temporary(self, shape: tuple[int, ...], dtype: str = "float32") -> View:
        """Memory between two steps."""
        self._places.append(math.prod(shape) * itemsize(dtype))
        return View(Source(place=len(self._places) - 1), dtype, shape, _operand._steps(shape))

    def result(
        self, out: Any, shape: tuple[int, ...], dtype: str, like: Any, name: str = "out", *, may_be: str = ""
    ) -> View:
        """Where a result goes: `out`, or a new array of `like`'s library: of any of the three float types where `dtype`
        is one, else of that type. It may be the memory of the input `may_be`, and of no other."""
        result = self._given(out, shape, dtype, name) if out is not None else self._new(shape, dtype, like)
        if out is not None:
            self._check_apart(result, name, may_be)
        self._results.append(result)
        return result.view

    def step(self, operator: str, *views: View | None, numbers: Sequence[float] = ()) -> None:
        self._steps.append(Step(operator, views, tuple(map(float, numbers))))

    def finish(self) -> list[Any]:
        """Run the steps; the results."""
        room = 0
        for s in self._steps:
            arrays = s.described(())
            room = max(room, self.native.operator_workspace(self.device, s.operator, arrays, s.numbers))
        sizes = [*self._places, room]
        with _workspace.places(self.native, self.device, self.stream, sizes, self.name, self._is_capturing) as places:
            for source in self._uploads:
                if source.host is not None and source.host.size:
                    data = source.host.reshape(-1).view(np.uint8)
                    self.native.upload(*places[source.place], data, self.stream)
            for s in self._steps:
                arrays = s.described(places)
                place = places[-1] if room else None
                self.native.run_operator(self.device, s.operator, arrays, s.numbers, place, self.stream)
            for r in self._results:
                if r.host is not None and r.host.size:
                    data = r.host.reshape(-1).view(np.uint8)
                    self.native.download(*places[r.view.source.place], data, self.stream)
        return [r.array if r.like is None else _operand.hand_over(r.array, r.like) for r in self._results]

    # ---- what these are made of ----

    def _input(self, name: str, view: View) -> View:
        self._inputs[name] = view
        return view

    def _taken(self, x: Any, name: str, writable: bool = False) -> View:
        operand = _operand.take(self.native, x, name, self.device, self.stream, writable)
        return View(Source(operand), operand.dtype, operand.shape, operand.strides)

    def _uploaded(self, array: NDArray[Any], name: str, dtype: str) -> View:
        self._refuse_host(name)
        self._places.append(array.nbytes)
        source = Source(place=len(self._places) - 1, host=array)
        self._uploads.append(source)
        return View(source, dtype, array.shape, _operand._steps(array.shape))

    def _refuse_host(self, name: str) -> None:
        if self._is_capturing:
            raise copy_while_capturing(self.name, name)

    def _given(self, out: Any, shape: tuple[int, ...], dtype: str, name: str) -> Result:
        wanted = FLOATS if dtype in FLOATS else (dtype,)
        if is_on_device(out):
            view = self._taken(out, name, writable=True)
            view = replace(view, dtype=float_type(view.dtype))
            if view.dtype not in wanted:
                raise TypeError(f"{name}: expected {', '.join(wanted)}, got {view.dtype}")
            if view.shape != shape:
                raise ValueError(f"{name}: expected shape {shape}, got {view.shape}")
            _check_places(view, name)
            return Result(view, out)
        self._refuse_host(name)
        if dtype in FLOATS:
            host = check_out(out, shape)
            found = float_dtype_name(out) or dtype
        else:
            host, found = check_integers_out(out, shape, np.dtype(dtype)), dtype
        return Result(self.temporary(shape, found), out, host)

    def _new(self, shape: tuple[int, ...], dtype: str, like: Any) -> Result:
        if not is_on_device(like):
            array = empty(shape, dtype) if dtype in FLOATS else np.empty(shape, dtype)
            return Result(self.temporary(shape, dtype), array, _inputs.bits(array))
        theirs = _operand.new_like(like, shape, dtype)
        if theirs is not None:
            return Result(self._taken(theirs, "out", writable=True), theirs)
        if self._is_capturing:
            raise new_while_capturing(self.name)
        made = DeviceArray.empty(shape, dtype, self.device, self.stream)
        source = Source(Operand(made._memory, made._offset, shape, _operand._steps(shape), dtype, made))
        return Result(View(source, dtype, shape, _operand._steps(shape)), made, like=like)

    def _check_apart(self, result: Result, name: str, may_be: str) -> None:
        begin, end = _range(result.view)
        for other, view in {**self._inputs, **{f"out[{i}]": r.view for i, r in enumerate(self._results)}}.items():
            other_begin, other_end = _range(view)
            if not (begin < other_end and other_begin < end):
                continue
            if other == may_be and _is_same_place(view, result.view):
                continue
            raise ValueError(f"{name}: expected memory of its own, it overlaps {other}")


def check_within(view: View, name: str, low: int, high: int) -> None:
    """Numbers of the host are looked at before anything is read."""
    numbers = view.source.host
    if numbers is None or numbers.size == 0:
        return
    bad = numbers[(numbers < low) | (numbers > high)]
    if bad.size:
        raise ValueError(f"{name}: expected {low} to {high}, got {bad.flat[0]}")


def _range(view: View) -> tuple[int, int]:
    """The addresses from its first element to behind its last; nothing for what is in the workspace."""
    operand = view.source.operand
    if operand is None or 0 in view.shape:
        return 0, 0
    begin = operand.memory.address + operand.offset
    last = sum((size - 1) * step for size, step in zip(view.shape, view.strides, strict=True))
    return begin, begin + (last + 1) * itemsize(view.dtype)


def _is_same_place(a: View, b: View) -> bool:
    """Whether elements of the same index are the same bytes: what is written over has been read."""
    same_size = itemsize(a.dtype) == itemsize(b.dtype)
    return same_size and a.strides == b.strides and _range(a) == _range(b)


def _check_places(view: View, name: str) -> None:
    """A ValueError where elements share memory, as those of a broadcast array do: each step must be at least what the
    axes of smaller steps cover."""
    covered = 1
    for step, size in sorted((s, n) for n, s in zip(view.shape, view.strides, strict=True) if n > 1):
        if step < covered and 0 not in view.shape:
            raise ValueError(f"{name}: expected elements that do not overlap, got strides {view.strides}")
        covered += (size - 1) * step


def _with_mergeable_axes(view: View, name: str, axes: int) -> View:
    """A ValueError where the first axes, all but axes - 1, cannot become one without a copy."""
    outer = [(n, s) for n, s in zip(view.shape, view.strides, strict=True)][: max(len(view.shape) - axes + 1, 0)]
    used = [(n, s) for n, s in outer if n != 1]
    for (_, step), (n, inner) in pairwise(used):
        if step != n * inner and 0 not in view.shape:
            raise ValueError(f"{name}: expected leading axes at one distance, got strides {view.strides}")
    if not used or len(outer) < 2:
        return view
    strides = (*view.strides[: len(outer) - 1], used[-1][1], *view.strides[len(outer) :])
    return replace(view, strides=strides)


def _device_of(operation: str, array: Any) -> int:
    if isinstance(array, DeviceArray):
        return array.device
    if hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[1])
    return _operand.device_of_interface(_driver.ready(operation), array)
