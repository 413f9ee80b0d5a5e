"""Spoils checkpoint files with a sense of what they are made of: JSON, pickle instructions, archives, headers, bytes."""

import io
import json
import pickle
import pickletools
import struct
import zipfile

from hostile_files import call, integer, name, tensor, text

INTERESTING = [0, 1, -1, 2, 127, 128, 255, 256, 65535, (1 << 31) - 1, -(1 << 63)]
INTERESTING += [1 << 31, 1 << 32, 1 << 62, 1 << 63, (1 << 64) - 1]
TEXTS = [
    "",
    "state",
    "params",
    "lr",
    "step",
    "exp_avg",
    "0",
    "-1",
    "a" * 5000,
    "9" * 5000,
]
TEXTS += ["\x1b[31m", "[/red]", "\ud800", "../x", "/etc/passwd", "x\0y"]

# What a file that means harm would hold. {trace} is a folder that must not be made.
SNIPPETS = [
    lambda trace: call("os", "mkdir", text(trace)),
    lambda trace: call("posix", "mkdir", text(trace)),
    lambda trace: call("builtins", "eval", text(f"__import__('os').mkdir({trace!r})")),
    lambda trace: call("torch.storage", "_load_from_bytes", _bytes(pickle.dumps(_Makes(trace)))),
    lambda trace: call("torch.jit._script", "unpackage_script_module", text(trace)),
    lambda trace: call("collections", "OrderedDict"),
    lambda trace: call("collections", "deque", b"]"),
    lambda trace: call("collections", "defaultdict", name("builtins", "list")),
    lambda trace: call("builtins", "range", integer(10**12)),
    lambda trace: call("pathlib", "PosixPath", text("/a")),
    lambda trace: call("decimal", "Decimal", text("1.5")),
    lambda trace: call("numpy", "dtype", text("O"), b"\x89", b"\x88"),
    lambda trace: call("numpy", "dtype", text("f8"), b"\x89", b"\x88")
    + b"(K\x03"
    + text("|")
    + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x3ftb",
    lambda trace: call(
        "numpy.core.multiarray",
        "scalar",
        call("numpy", "dtype", text("f8")),
        b"C\x08abcdefgh",
    ),
    lambda trace: tensor(),
    lambda trace: tensor(shape=(10**9,), stride=(0,)),
    lambda trace: tensor(shape=(3000,)),
    lambda trace: tensor(shape=(2,), kind="DoubleStorage"),
    lambda trace: tensor(kind="QInt8Storage"),
    lambda trace: call(
        "torch._utils",
        "_rebuild_meta_tensor_no_storage",
        name("torch", "float32"),
        b"K\x02\x85K\x01\x85\x89",
    ),
    lambda trace: name("torch", "Tensor"),
    lambda trace: name("torch", "float16"),
    lambda trace: b"b",
    lambda trace: b"R",
    lambda trace: b"\x81",
    lambda trace: b"Q",
    lambda trace: b"N",
    lambda trace: b"}",
    lambda trace: b"]",
    lambda trace: b"(",
    lambda trace: b"\x85",
    lambda trace: b"\x85" * 200,
    lambda trace: b"](" + b"h\x01" * 100 + b"e",
    lambda trace: b"r\x00\x00\x00\x10",
    lambda trace: b"h\x01",
    lambda trace: b"j\x05\x00\x00\x00",
    lambda trace: text("a"),
    lambda trace: integer(10**3000),
    lambda trace: b"G" + struct.pack(">d", float("nan")),
]


class _Makes:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        import os

        return os.mkdir, (self.path,)


def _bytes(data):
    return b"B" + struct.pack("<I", len(data)) + data


class Spoiler:
    """One way to spoil a checkpoint, decided by chance.

    Args:
        chance (random.Random): The chance.
        trace (str): A folder that only code in a file would make.
    """

    def __init__(self, chance, trace):
        self.chance = chance
        self.trace = trace
        self.done = []

    def spoil(self, files):
        """Spoil one file of a checkpoint, once or a few times.

        Args:
            files (dict): The bytes of its files by name. Changed.
        """
        for _ in range(self.chance.choice((1, 1, 1, 2, 4))):
            which = self.chance.choice(sorted(files))
            how = self.chance.random()
            if how < 0.03:
                self.done.append(f"remove {which}")
                del files[which]
            elif how < 0.06:
                other = self.chance.choice(sorted(files))
                self.done.append(f"put {other} in the place of {which}")
                files[which] = files[other]
            elif how < 0.18:
                files[which] = self.raw(files[which])
            else:
                files[which] = self.by_kind(which, files[which])
            if not files:
                return

    def by_kind(self, which, data):
        """Spoil the bytes of one file with a sense of what it is."""
        self.done.append(which)
        try:
            if which.endswith(".json"):
                return self.json_text(data)
            if which.endswith(".safetensors"):
                return self.safetensors(data)
            return self.archive(data) if data.startswith(b"PK") else self.pickles(data)
        except Exception:
            return self.raw(data)  # it has been spoilt before

    # ======================================
    # bytes
    # ======================================

    def raw(self, data):
        """Spoil bytes without any sense."""
        data = bytearray(data)
        how = self.chance.choice(
            (
                "flip",
                "flip",
                "flip",
                "cut",
                "insert",
                "remove",
                "repeat",
                "number",
                "zero",
            )
        )
        self.done.append(f"bytes: {how}")
        at = self.chance.randrange(len(data) + 1)
        if how == "flip" and data:
            for _ in range(self.chance.choice((1, 1, 3, 20))):
                data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
        elif how == "cut":
            del data[at:]
        elif how == "insert":
            data[at:at] = self.chance.randbytes(self.chance.choice((1, 4, 100)))
        elif how == "remove":
            del data[at : at + self.chance.choice((1, 2, 8, 100))]
        elif how == "repeat":
            data[at:at] = data[max(0, at - self.chance.choice((1, 30, 1000))) : at]
        elif how == "number":
            value = self.chance.choice(INTERESTING) & ((1 << 64) - 1)
            width = self.chance.choice((1, 2, 4, 8))
            data[at : at + width] = value.to_bytes(8, "little")[:width]
        else:
            data[at : at + 16] = bytes(len(data[at : at + 16]))
        return bytes(data)

    # ======================================
    # JSON
    # ======================================

    def json_text(self, data):
        """Spoil JSON."""
        if self.chance.random() < 0.15:
            return self.raw(data)
        content = json.loads(data)
        for _ in range(self.chance.choice((1, 1, 3))):
            content = self.json_value(content)
        return json.dumps(content).encode()

    def json_value(self, value):
        """Spoil one value somewhere in a structure."""
        if isinstance(value, dict) and value and self.chance.random() < 0.8:
            key = self.chance.choice(sorted(value))
            how = self.chance.random()
            if how < 0.1:
                del value[key]
            elif how < 0.3:
                value[self.chance.choice(TEXTS + list(map(str, INTERESTING)))] = value[key]
            elif how < 0.4:
                value[key] = value[self.chance.choice(sorted(value))]
            else:
                value[key] = self.json_value(value[key])
            return value
        if isinstance(value, list) and value and self.chance.random() < 0.7:
            at = self.chance.randrange(len(value))
            value[at] = self.json_value(value[at])
            return value
        return self.chance.choice(
            [
                None,
                True,
                1.5,
                [],
                {},
                [value],
                {"a": value},
                self.chance.choice(INTERESTING),
                self.chance.choice(TEXTS),
            ]
        )

    # ======================================
    # pickles
    # ======================================

    def pickle(self, data, begin=0):
        """Spoil the instructions of one pickle."""
        stream = io.BytesIO(data)
        stream.seek(begin)
        starts = [position for _, _, position in pickletools.genops(stream)]
        end = stream.tell()
        pieces = [data[one:other] for one, other in zip(starts, starts[1:] + [end])]
        for _ in range(self.chance.choice((1, 1, 1, 2, 5))):
            self.instruction(pieces)
        return data[:begin] + b"".join(pieces) + data[end:]

    def instruction(self, pieces):
        """Spoil one instruction."""
        at = self.chance.randrange(len(pieces))
        how = self.chance.choice("number number snippet snippet snippet remove repeat swap text move flip many".split())
        self.done.append(f"instruction {at}: {how}")
        numbers = [index for index, piece in enumerate(pieces) if piece[:1] in (b"K", b"M", b"J", b"\x8a")]
        texts = [index for index, piece in enumerate(pieces) if piece[:1] in (b"X", b"\x8c")]
        if how == "number" and numbers:
            pieces[self.chance.choice(numbers)] = integer(self.chance.choice(INTERESTING + [self.chance.randrange(30)]))
        elif how == "snippet":
            snippet = self.chance.choice(SNIPPETS)(self.trace)
            pieces[at : at + self.chance.choice((0, 0, 1))] = [snippet]
        elif how == "remove":
            del pieces[at : at + self.chance.choice((1, 1, 3))]
        elif how == "repeat":
            pieces[at:at] = pieces[at : at + self.chance.choice((1, 1, 5, 40))] * self.chance.choice((1, 1, 20))
        elif how == "swap":
            other = self.chance.randrange(len(pieces))
            pieces[at], pieces[other] = pieces[other], pieces[at]
        elif how == "text" and texts:
            pieces[self.chance.choice(texts)] = text(self.chance.choice(TEXTS))
        elif how == "move":
            pieces.insert(self.chance.randrange(len(pieces)), pieces.pop(at))
        elif how == "many":
            pieces[at:at] = [self.chance.choice(pieces)] * self.chance.choice((1000, 50_000))
        elif pieces[at]:
            piece = bytearray(pieces[at])
            piece[self.chance.randrange(len(piece))] ^= 1 << self.chance.randrange(8)
            pieces[at] = bytes(piece)

    def pickles(self, data):
        """Spoil a file of the older format: a row of pickles, and the data of tensors."""
        stream = io.BytesIO(data)
        begins = []
        for _ in range(5):
            begins.append(stream.tell())
            for _ in pickletools.genops(stream):
                pass
        if self.chance.random() < 0.2:
            end = stream.tell()
            return data[:end] + self.raw(data[end:])
        return self.pickle(data, self.chance.choice(begins[2:] + [begins[3]] * 4))

    # ======================================
    # archives
    # ======================================

    def archive(self, data):
        """Spoil an archive, its records or its directory."""
        if self.chance.random() < 0.25:
            return self.directory(data)
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            records = {record: file.read(record) for record in file.namelist()}
        folder = next(iter(records)).partition("/")[0]
        how = self.chance.random()
        if how < 0.65:
            records[f"{folder}/data.pkl"] = self.pickle(records[f"{folder}/data.pkl"])
        elif how < 0.75:
            record = self.chance.choice(sorted(records))
            self.done.append(f"record {record}")
            records[record] = self.raw(records[record])
        elif how < 0.85:
            self.done.append("remove a record")
            del records[self.chance.choice(sorted(records))]
        else:
            added = self.chance.choice(
                (
                    "constants.pkl",
                    "code/a.py",
                    "data/9",
                    "x",
                    "../x",
                    "data/0",
                    "byteorder",
                    ".data/x",
                    "data.pkl",
                )
            )
            self.done.append(f"add a record {added}")
            records[f"{folder}/{added}"] = self.chance.choice((b"", b"big", bytes(8), *list(records.values())[:1]))
        return self.packed(records)

    def packed(self, records):
        """Write an archive, mostly as torch does."""
        packed = io.BytesIO()
        compression = zipfile.ZIP_DEFLATED if self.chance.random() < 0.1 else zipfile.ZIP_STORED
        with zipfile.ZipFile(packed, "w", compression) as file:
            for record, content in records.items():
                file.writestr(record, content)
        return packed.getvalue()

    def directory(self, data):
        """Spoil a number in a header of an archive."""
        data = bytearray(data)
        marks = (
            b"PK\x01\x02",
            b"PK\x03\x04",
            b"PK\x05\x06",
            b"PK\x06\x06",
            b"PK\x06\x07",
        )
        places = [at for mark in marks for at in _all(data, mark)]
        at = self.chance.choice(places) + self.chance.randrange(4, 60)
        width = self.chance.choice((1, 2, 4, 8))
        self.done.append(f"header at {at}, {width} bytes")
        value = self.chance.choice(INTERESTING + [self.chance.randrange(1 << 16), len(data)]) & ((1 << 64) - 1)
        data[at : at + width] = value.to_bytes(8, "little")[:width]
        return bytes(data)

    # ======================================
    # safetensors
    # ======================================

    def safetensors(self, data):
        """Spoil a header, or a pickled value."""
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        tensors = bytearray(data[8 + length :])
        pickled = json.loads(header.get("__metadata__", {}).get("non_tensor_keys", "[]"))
        if pickled and self.chance.random() < 0.5:
            key = self.chance.choice(pickled)
            begin, end = header[key]["data_offsets"]
            self._replace(header, tensors, key, self.pickle(bytes(tensors[begin:end])))
        elif self.chance.random() < 0.2:
            metadata = header.setdefault("__metadata__", {})
            metadata["non_tensor_keys"] = json.dumps(self.json_value(pickled))
        else:
            self.done.append("header")
            header = self.json_value(header)
        text_of_header = json.dumps(header).encode()
        told = self.chance.choice(INTERESTING) if self.chance.random() < 0.05 else len(text_of_header)
        return (told & ((1 << 64) - 1)).to_bytes(8, "little") + text_of_header + bytes(tensors)

    @staticmethod
    def _replace(header, tensors, key, value):
        begin, end = header[key]["data_offsets"]
        tensors[begin:end] = value
        grown = len(value) - (end - begin)
        for name_of_entry, entry in header.items():
            if name_of_entry == "__metadata__":
                continue
            first, last = entry["data_offsets"]
            if name_of_entry == key:
                entry["shape"], entry["data_offsets"] = [len(value)], [
                    first,
                    last + grown,
                ]
            elif first >= end:
                entry["data_offsets"] = [first + grown, last + grown]


def _all(data, mark):
    at = data.find(mark)
    while at >= 0:
        yield at
        at = data.find(mark, at + 1)
