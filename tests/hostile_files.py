"""Makes checkpoint files that no saver writes: pickles of chosen instructions, archives of chosen records."""

import io
import struct
import zipfile

import torch

PROTOCOL = b"\x80\x02"


def text(value):
    """Instructions for a text."""
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def integer(value):
    """Instructions for an integer of any size."""
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8b" + struct.pack("<i", len(data)) + data


def name(module, attribute):
    """Instructions for something named."""
    return f"c{module}\n{attribute}\n".encode()


def call(module, attribute, *arguments):
    """Instructions that call something named."""
    return name(module, attribute) + b"(" + b"".join(arguments) + b"tR"


def tensor(numel=2, shape=(2,), stride=(1,), offset=0, key="0", kind="FloatStorage"):
    """Instructions for a tensor, as torch.save writes them, of any numbers."""
    data = b"(" + text("storage") + name("torch", kind) + text(key) + text("cpu") + integer(numel) + b"tQ"
    layout = [b"(" + b"".join(map(integer, part)) + b"t" for part in (shape, stride)]
    hooks = call("collections", "OrderedDict")
    return call("torch._utils", "_rebuild_tensor_v2", data, integer(offset), *layout, b"\x89", hooks)


def pickled(*instructions):
    """A whole pickle."""
    return PROTOCOL + b"".join(instructions) + b"."


def archive(path, pickle, records=(), root="archive", compression=zipfile.ZIP_STORED):
    """Write an archive as torch.save does, of a pickle and more records."""
    records = {"data.pkl": pickle, "byteorder": b"little", "version": b"3\n", "data/0": bytes(8), **dict(records)}
    with zipfile.ZipFile(path, "w", compression) as file:
        for record, data in records.items():
            if data is not None:
                file.writestr(f"{root}/{record}", data)


def rewritten(path, change, compression=zipfile.ZIP_STORED):
    """Change the records of an archive."""
    with zipfile.ZipFile(path) as file:
        records = {record: file.read(record) for record in file.namelist()}
    change(records)
    with zipfile.ZipFile(path, "w", compression) as file:
        for record, data in records.items():
            file.writestr(record, data)


def legacy(content):
    """The bytes of a file of torch's format from before version 1.6."""
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue()


def bomb(path, size):
    """Write an archive with a record of zeros that is a thousand times as long as what is stored of it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        file.writestr("archive/data.pkl", pickled(tensor(size // 4, (size // 4,))))
        with file.open("archive/data/0", "w", force_zip64=True) as record:
            for _ in range(size >> 20):
                record.write(bytes(1 << 20))
