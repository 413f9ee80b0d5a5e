"""Read a tensor from a pickle in one step, where it is written as torch.save writes all but the first few of a file.

Checkpoints of many small parameters are thousands of times the same thirty instructions. What looks any different is left to
the interpreter, which is always right.
"""

import re
import struct
from math import prod
from typing import Any, Dict, Optional, Tuple

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
    + rb"(%b)%b%b\x89(%b)\)R%bt%bR%b" % (_NUMBER, _NUMBERS, _NUMBERS, _REFERENCE, _KEPT, _KEPT, _KEPT),
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


class TensorShortcut:
    """
    Args:
        tensors (TensorUnpickler): What the tensors are counted by.
        records (Dict[bytes, Record]): The records of the file.
    """

    def __init__(self, tensors: TensorUnpickler, records: Dict[bytes, Record]) -> None:
        self._tensors = tensors
        self._records = records
        self._kinds: Dict[Tuple[bytes, bytes, bytes], Optional[StorageKind]] = {}
        self._layouts: Dict[Tuple[Optional[bytes], Optional[bytes]], Any] = {}
        self._integers: Dict[bytes, int] = {}
        self._indices = b""
        self._name = "torch._utils._rebuild_tensor_v2"

    def __call__(self, it: PlainUnpickler, value: Any) -> bool:
        """
        Args:
            it (PlainUnpickler): The interpreter, behind a reference.
            value (Any): What has been referred to.

        Returns:
            bool: Whether a tensor followed, and is on the stack now.
        """
        found = _TENSOR.match(it.data, it.position) if value.name == self._name else None
        if found is None:
            return False
        (names, width, key, p1, place, numel, p2, offset, size, p3, stride, p4, hooks, p5, p6, p7) = found.groups()
        kept = (p1, p2, p3, p4, p5, p6, p7) if size and stride else (p1, p2, p5, p6, p7)
        memo = it.memo
        kind = self._kinds.get((names, place, hooks)) or self._kind(memo, names, place, hooks)
        layout = self._layouts.get((size, stride)) or self._layout(size, stride)
        record = self._records.get(b"data/" + key)
        if not kind or not layout or not record or width[0] != len(key) or not self._follow(memo, kept):
            return False
        dtype = kind.dtype
        shape, steps, span, count = layout
        length = self._integer(numel)
        first = self._integer(offset)
        source, start, held, _ = record
        if first < 0 or first + span > length or not 0 <= held - length * dtype.itemsize < dtype.itemsize:
            return False
        tensor = SavedTensor(source, start + first * dtype.itemsize, dtype, shape, steps)
        self._tensors.use(count * dtype.itemsize)
        sizes = (shape, steps) if len(kept) == 7 else ()
        memo.extend((key.decode(), LeftOut, *sizes, LeftOut, LeftOut, tensor))
        it.stack.append(tensor)
        it.position = found.end()
        return True

    def _kind(self, memo: Any, names: bytes, place: bytes, hooks: bytes) -> Optional[StorageKind]:
        indices = _references(names + place + hooks)
        if max(indices) >= len(memo):
            return None
        word, kind, device, maker = (memo[index] for index in indices)
        usual = word == "storage" and type(kind) is StorageKind and kind.dtype is not None and not kind.untyped
        if usual and type(device) is str and device != "meta" and maker is find_plain("collections", "OrderedDict"):
            self._kinds[names, place, hooks] = kind
            return kind
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

    def _integer(self, text: bytes) -> int:
        number = self._integers.get(text)
        if number is None:
            number = self._integers[text] = _numbers(text)[0]
        return number

    def _follow(self, memo: Any, kept: Tuple[bytes, ...]) -> bool:
        # Whether memo indices go on where the memo ends.
        start = len(memo)
        if 4 * (start + 7) > len(self._indices):
            count = 2 * (start + 7)
            self._indices = struct.pack("<{}I".format(count), *range(count))
        return b"".join(kept) == self._indices[4 * start : 4 * (start + len(kept))]
