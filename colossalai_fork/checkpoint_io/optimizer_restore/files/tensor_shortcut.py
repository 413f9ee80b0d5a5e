"""Read a tensor from a pickle in one step, where it is written as torch.save writes all but the first few of a file.

Checkpoints of many small parameters are thousands of times the same thirty instructions. What looks any different is left to
the interpreter, which is always right.
"""

import re
import struct
from math import prod
from typing import Any, Dict, Optional, Tuple

import torch

from .constructors import find_plain
from .pickled_tensors import StorageKind, TensorUnpickler, checked_layout
from .plain_pickle import LeftOut, PickleError, PlainUnpickler
from .saved_tensor import SavedTensor
from .zip_directory import Record

__all__ = ["TensorShortcut"]

_REFERENCE = rb"(?:h.|j....)"
_NUMBER = rb"(?:K.|M..|J....)"
_KEPT = rb"r(....)"
_NUMBERS = rb"(?:\)|((?:%b){1,3}[\x85-\x87]|\((?:%b){4,8}t)%b)" % (_NUMBER, _NUMBER, _KEPT)
# The data: "storage", its kind, its key, its place, its length. Then the tensor: offset, size, stride, no gradient, no hooks.
_TENSOR = re.compile(
    rb"\(\((%b%b)X(.)\0\0\0([0-9]{1,12})%b(%b)(%b)t%bQ" % (_REFERENCE, _REFERENCE, _KEPT, _REFERENCE, _NUMBER, _KEPT)
    + rb"(%b)%b%b\x89(%b)\)R%bt%bR%b" % (_NUMBER, _NUMBERS, _NUMBERS, _REFERENCE, _KEPT, _KEPT, _KEPT)
    # Often the name of the next state, and what makes tensors once more.
    + rb"(?:(%b)(%b)(?=\())?" % (_REFERENCE, _REFERENCE),
    re.DOTALL,
)


def _references(text: bytes) -> Tuple[int, ...]:
    found = []
    at = 0
    while at < len(text):
        width = 1 if text[at] == 0x68 else 4
        found.append(int.from_bytes(text[at + 1 : at + 1 + width], "little"))
        at += 1 + width
    return tuple(found)


def _numbers(text: bytes) -> Tuple[int, ...]:
    found = []
    at = 0
    widths = {0x4B: 1, 0x4D: 2, 0x4A: 4}
    while at < len(text):
        width = widths[text[at]]
        found.append(int.from_bytes(text[at + 1 : at + 1 + width], "little", signed=width == 4))
        at += 1 + width
    return tuple(found)


def _tuple(text: bytes) -> Tuple[int, ...]:
    if text[0] == 0x28:
        return _numbers(text[1:-1])
    found = _numbers(text[:-1])
    if len(found) != text[-1] - 0x84:
        # A tuple of fewer numbers than are there.
        raise PickleError("it holds a damaged tensor")
    return found


class _Integers(dict):
    """Integers by the instructions for them."""

    def __missing__(self, text: bytes) -> int:
        self[text] = _numbers(text)[0]
        return self[text]


class _References(dict):
    """Memo indices by the instructions that refer to them."""

    def __missing__(self, text: bytes) -> int:
        self[text] = _references(text)[0]
        return self[text]


class TensorShortcut:
    """
    Recognises the opcodes that torch.save writes for a tensor, and handles them at once.

    Args:
        tensors (TensorUnpickler): What the tensors are counted by.
        records (Dict[bytes, Record]): The records of the file.
    """

    def __init__(self, tensors: TensorUnpickler, records: Dict[bytes, Record]) -> None:
        self._tensors = tensors
        # Filled as the file goes on. Few files have more than a handful of each.
        self._kinds: Dict[Tuple[bytes, bytes, bytes], torch.dtype] = {}
        self._layouts: Dict[Tuple[Optional[bytes], Optional[bytes]], Any] = {}
        self._tables = (self._kinds, self._layouts, _Integers(), records)
        self._references = _References()
        # Memo indices from zero on, as they stand in a pickle.
        self._indices = b""
        self._maker = tensors.maker

    def __call__(self, it: PlainUnpickler, value: Any) -> bool:
        """
        Read the opcodes of one tensor, if that is what follows.

        Args:
            it (PlainUnpickler): The interpreter, behind a reference.
            value (Any): What has been referred to.

        Returns:
            bool: Whether a tensor followed, and is on the stack now; further ones with their names may be, too.
        """
        if value is not self._maker:
            return False
        found = _TENSOR.match(it.data, it.position)
        if found is None or not self._make(it, found):
            return False
        memo, indices = it.memo, self._references
        while True:
            name, maker = found.group(17, 18)
            it.position = found.end(16)
            if maker is None or indices[maker] >= len(memo) or memo[indices[maker]] is not value:
                return True
            name_at = indices[name]
            if name_at >= len(memo) or type(memo[name_at]) is not str:
                return True
            it.stack.append(memo[name_at])
            it.position = found.end(17)
            found = _TENSOR.match(it.data, found.end())
            if found is None or not self._make(it, found):
                return True

    def _make(self, it: PlainUnpickler, found: "re.Match") -> bool:
        memo = it.memo
        (names, width, key, p1, place, numel, p2, offset, size, p3, stride, p4, hooks, p5, p6, p7, _, _) = (
            found.groups()
        )
        kinds, layouts, integers, records = self._tables
        dtype = kinds.get((names, place, hooks)) or self._dtype(memo, names, place, hooks)
        layout = layouts.get((size, stride)) or self._layout(size, stride)
        record = records.get(b"data/" + key)
        if not dtype or not layout or not record or width[0] != len(key):
            return False
        shape, steps, span, count = layout
        length = integers[numel]
        first = integers[offset]
        source, start, held, _ = record
        width = dtype.itemsize
        if first < 0 or first + span > length or not 0 <= held - length * width < width:
            return False
        tensor = SavedTensor(source, start + first * width, dtype, shape, steps)
        if shape:
            kept = (p1, p2, p3, p4, p5, p6, p7)
            values: Tuple = (key.decode(), LeftOut, shape, steps, LeftOut, LeftOut, tensor)
        else:
            kept = (p1, p2, p5, p6, p7)
            values = (key.decode(), LeftOut, LeftOut, LeftOut, tensor)
        at = 4 * len(memo)
        if b"".join(kept) != (self._indices[at : at + 4 * len(kept)] or self._more_indices(len(memo), len(kept))):
            return False
        self._tensors.use(count * width)
        memo += values
        it.stack.append(tensor)
        return True

    def _dtype(self, memo: Any, names: bytes, place: bytes, hooks: bytes) -> Optional[torch.dtype]:
        indices = _references(names + place + hooks)
        if max(indices) >= len(memo):
            return None
        word, kind, device, maker = (memo[index] for index in indices)
        usual = word == "storage" and type(kind) is StorageKind and kind.dtype is not None and not kind.untyped
        if usual and type(device) is str and device != "meta" and maker is find_plain("collections", "OrderedDict"):
            self._kinds[names, place, hooks] = kind.dtype
            return kind.dtype
        return None

    def _layout(self, size: Optional[bytes], stride: Optional[bytes]) -> Any:
        if (size is None) != (stride is None):
            return None
        try:
            shape, steps = checked_layout(_tuple(size) if size else (), _tuple(stride) if stride else ())
        except PickleError:
            return None
        span = 1 + sum((length - 1) * step for length, step in zip(shape, steps)) if prod(shape) else 0
        self._layouts[size, stride] = (shape, steps, span, prod(shape))
        return self._layouts[size, stride]

    def _more_indices(self, start: int, count: int) -> bytes:
        total = 2 * (start + count)
        self._indices = struct.pack("<{}I".format(total), *range(total))
        return self._indices[4 * start : 4 * (start + count)]
