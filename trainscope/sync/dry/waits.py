"""Which dispatched operators wait for the GPU: one table, each row with its reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainscope.sync.dry.marks import Made, Marks

__all__ = ["LARGE_PAGEABLE_BYTES", "Wait", "waits_of"]

LARGE_PAGEABLE_BYTES = 4 << 20
"""From here on a non_blocking copy of pageable memory was measured to wait (H200, CUDA 13)."""


@dataclass(frozen=True)
class Wait:
    """A kind of wait, and how many waits of it one call makes on a GPU."""

    kind: str
    count: int
    reason: str


_ITEM = Wait("item-implicit", 1, "the operator needs the value as a number")
_MASK = Wait("nonzero", 1, "how many elements are set gives the size of the result")
_ONE_SIZE = Wait("size-readback", 1, "how many differ gives the size of the result")

_TABLE: Mapping[str, Wait] = {
    "aten::nonzero": _MASK,
    "aten::masked_select": _MASK,
    "aten::_unique": _ONE_SIZE,
    "aten::_unique2": _ONE_SIZE,
    "aten::unique_dim": _ONE_SIZE,
    "aten::unique_consecutive": _ONE_SIZE,
    "aten::unique_dim_consecutive": _ONE_SIZE,
    # the least value is read to refuse negatives, the greatest to size the result
    "aten::bincount": Wait("size-readback", 2, "least and greatest value are read"),
    "aten::allclose": Wait("bool", 1, "the answer is a Python bool"),
    "aten::_local_scalar_dense": _ITEM,
    "aten::_linalg_check_errors": Wait("item-implicit", 1, "the error flag is read"),
    # what these read, and how often, was counted on an H200 with torch 2.11
    "aten::_linalg_svd": Wait("item-implicit", 2, "whether it converged is read"),
    "aten::_linalg_eigh": Wait("item-implicit", 1, "whether it converged is read"),
    "aten::linalg_eig": Wait("item-implicit", 3, "it is computed on the CPU in part"),
    "aten::linalg_lstsq": Wait("item-implicit", 1, "the error flag is read"),
    "aten::linalg_pinv": Wait("item-implicit", 2, "it is made of an svd"),
    "aten::linalg_matrix_exp": Wait("item-implicit", 3, "norms choose the number of terms"),
    "aten::_ctc_loss_backward": Wait("item-implicit", 3, "lengths and offsets are copied"),
    "aten::_coalesce": Wait("size-readback", 5, "its sort and count are read in parts"),
    "aten::_sparse_sum": Wait("size-readback", 1, "how many differ gives the size of the result"),
    "aten::_to_sparse": Wait("size-readback", 1, "how many are set gives the size of the result"),
}

_ANSWER = Wait("bool", 1, "the answer is a Python bool")
_LENGTHS = Wait("item-implicit", 5, "lengths and offsets are copied to the GPU")
_LENGTHS_THERE = Wait("item-implicit", 8, "lengths are read, and copied back with offsets")
_STD = Wait("item-implicit", 2, "that no standard deviation is negative is tested")
_NO_SIZE = Wait("size-readback", 2, "the repeats are summed and checked for negatives")
_FILL = Wait("item-implicit", 1, "the fill value is read")
_SCALAR = Wait("h2d-scalar", 1, "the number is copied to the GPU")
_INDEX = Wait("h2d-pageable", 1, "the index is copied to the GPU")
_LIST = Wait("h2d-list", 1, "the index is made of a Python list and copied to the GPU")


def waits_of(
    name: str, args: Sequence[object], kwargs: Mapping[str, object], marks: Marks
) -> tuple[Wait, ...]:
    """Return the waits of one operator call; `name` is its schema name, such as aten::index."""
    special = _SPECIAL.get(name)
    if special is not None:
        return special(args, kwargs, marks)
    wait = _TABLE.get(name)
    if wait is None or not _first_on_device(args, marks):
        return ()
    return (wait,)


def _first_on_device(args: Sequence[object], marks: Marks) -> bool:
    return bool(args) and isinstance(args[0], Tensor) and marks.on_device(args[0])


def _index(args: Sequence[object], kwargs: Mapping[str, object], marks: Marks) -> tuple[Wait, ...]:
    if not _first_on_device(args, marks):
        return ()
    return _index_waits(args[1], marks)


def _index_waits(indices: object, marks: Marks) -> tuple[Wait, ...]:
    found: list[Wait] = []
    for index in _tensors(indices):
        mask, made = _is_mask(index), marks.index(index)
        if made is not None:
            found.extend((_LIST,) if made is Made.OF_LIST else ())
        elif mask and marks.on_device(index):
            found.append(_MASK)
        elif not mask and index.dim() > 0 and not marks.on_device(index):
            # a mask on the host is turned into indices there and copied without a wait
            found.append(_INDEX)
    return tuple(found)


def _is_mask(index: Tensor) -> bool:
    return index.dtype in (torch.bool, torch.uint8)


def _index_put(
    args: Sequence[object], kwargs: Mapping[str, object], marks: Marks
) -> tuple[Wait, ...]:
    if not _first_on_device(args, marks):
        return ()
    value = args[2]
    accumulate = bool(args[3] if len(args) > 3 else kwargs.get("accumulate", False))
    if not isinstance(value, Tensor):
        return _index_waits(args[1], marks)
    indices = _tensors(args[1])
    from_host = value.numel() == 1 and not marks.on_device(value)
    under_one_mask = len(indices) == 1 and _is_mask(indices[0]) and marks.on_device(indices[0])
    if value.numel() == 1 and under_one_mask and not accumulate:
        return () if from_host else (_FILL,)  # becomes a masked fill: no size is needed
    waits = _index_waits(indices, marks)
    return (*waits, _SCALAR) if from_host and value.dim() == 0 else waits


def _masked_fill(
    args: Sequence[object], kwargs: Mapping[str, object], marks: Marks
) -> tuple[Wait, ...]:
    value = args[2] if len(args) > 2 else kwargs.get("value")
    return (_FILL,) if isinstance(value, Tensor) and marks.on_device(value) else ()


def _repeat_interleave(
    args: Sequence[object], kwargs: Mapping[str, object], marks: Marks
) -> tuple[Wait, ...]:
    known = kwargs.get("output_size") is not None
    return () if known or not _first_on_device(args, marks) else (_NO_SIZE,)


def _histc(args: Sequence[object], kwargs: Mapping[str, object], marks: Marks) -> tuple[Wait, ...]:
    low = args[2] if len(args) > 2 else kwargs.get("min", 0)
    high = args[3] if len(args) > 3 else kwargs.get("max", 0)
    if low != high or not _first_on_device(args, marks):
        return ()
    return (Wait("item-implicit", 2, "with no range given, least and greatest value are read"),)


def _equal(args: Sequence[object], kwargs: Mapping[str, object], marks: Marks) -> tuple[Wait, ...]:
    if not _first_on_device(args, marks):
        return ()
    one, other = args[:2]
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape != other.shape or not one.numel():
            return ()
        if one.data_ptr() == other.data_ptr() and one.stride() == other.stride():
            return ()  # the same memory: nothing is compared
    return (_ANSWER,)


def _ctc_loss(
    args: Sequence[object], kwargs: Mapping[str, object], marks: Marks
) -> tuple[Wait, ...]:
    if not _first_on_device(args, marks):
        return ()
    lengths = [each for each in args[2:4] if isinstance(each, Tensor)]
    return (_LENGTHS_THERE if any(map(marks.on_device, lengths)) else _LENGTHS,)


def _normal(args: Sequence[object], kwargs: Mapping[str, object], marks: Marks) -> tuple[Wait, ...]:
    std = args[1] if len(args) > 1 else kwargs.get("std")
    return (_STD,) if isinstance(std, Tensor) and marks.on_device(std) else ()


_SPECIAL: Mapping[
    str, Callable[[Sequence[object], Mapping[str, object], Marks], tuple[Wait, ...]]
] = {
    "aten::index": _index,
    "aten::index_put": _index_put,
    "aten::index_put_": _index_put,
    "aten::_index_put_impl_": _index_put,
    "aten::masked_fill": _masked_fill,
    "aten::masked_fill_": _masked_fill,
    "aten::repeat_interleave": _repeat_interleave,
    "aten::histc": _histc,
    "aten::equal": _equal,
    "aten::_ctc_loss": _ctc_loss,
    "aten::normal": _normal,
}


def _tensors(values: object) -> list[Tensor]:
    if isinstance(values, (list, tuple)):
        return [value for value in values if isinstance(value, Tensor)]
    return []
