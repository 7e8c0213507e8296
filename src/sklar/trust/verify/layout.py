"""A model file byte by byte: nothing may stand in it, between its members or around them, that Sklar did not write.

A zip can hold bytes that no reader shows: before the first member, between members, behind the last, in extra fields
and comments, behind the end of a packed stream. JSON can say the same in many ways. A file passes when every byte is
the one that `files.archive.save` would write, but for the choices of the compressor, which may differ by its version.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO

from sklar.errors import ModelError
from sklar.files.archive import arrays_of, describe, member
from sklar.files.model import LinkedModel, Model
from sklar.public.description import open_model, written

# signature; created by (version, system); needed version; flags; method; time, date; checksum, sizes; lengths of name,
# extra field and comment; disk; attributes inside and outside; place of the member.
_ENTRY = struct.Struct("<4sBBHHHHH3L5HLL")
_END = struct.Struct("<4s4HLLH")
# Packed bytes: they may unpack to a thousand times as many.
_AT_ONCE = 1 << 14
# Beyond, a zip has fields of other lengths.
_LARGEST = (1 << 31) - 1


def check_layout(path: Path, model: Model | LinkedModel) -> str:
    """Say what was compared; raise where a byte is not as it must be."""
    with open_model(path) as (archive, _):
        text = archive.read("model.json")
        found = {each.filename: each for each in archive.infolist()}
    if written(describe(model)) != text:
        raise ModelError("its description is not written as Sklar writes it.")
    size = path.stat().st_size
    # Python's writer allows for packing that makes a member a twentieth longer.
    if max(size, *(1.05 * each.file_size for each in found.values())) > _LARGEST:
        return "the description is written in the one way that there is; a file of this size is not compared further"
    with path.open("rb") as file:
        names = ("model.json", *(f"{name}.npy" for name in arrays_of(model)))
        entries = b"".join(_check_member(file, name, found[name]) for name in names)
        start = file.tell()
        if file.read(len(entries)) != entries:
            raise ModelError("the list of its members is not as Sklar writes it.")
        end = _END.pack(b"PK\5\6", 0, 0, len(found), len(found), len(entries), start, 0)
        if file.read() != end:
            raise ModelError("something stands behind its members.")
    return f"{size:,} bytes, all of them where and as Sklar writes them"


def _check_member(file: IO[bytes], name: str, info: zipfile.ZipInfo) -> bytes:
    """Its entry in the list of members, when it stands here as it must."""
    place, wanted = file.tell(), member(name)
    wanted.CRC, wanted.compress_size, wanted.file_size = info.CRC, info.compress_size, info.file_size
    # What Python's writer sets when it begins a member.
    wanted.external_attr = 0o600 << 16
    header = wanted.FileHeader(zip64=False)
    if file.read(len(header)) != header:
        raise ModelError(f"its member '{name}' does not stand where and as Sklar writes it.")
    stream = zlib.decompressobj(-15) if wanted.compress_type == zipfile.ZIP_DEFLATED else None
    left, unpacked = info.compress_size, 0
    while left:
        part = file.read(min(left, _AT_ONCE))
        if not part:
            raise ModelError(f"its member '{name}' ends too early.")
        left -= len(part)
        if stream is not None:
            unpacked += len(stream.decompress(part))
            if stream.unused_data or (stream.eof and left) or unpacked > info.file_size:
                raise ModelError(f"something stands behind the content of its member '{name}'.")
    if stream is not None and (not stream.eof or unpacked != info.file_size):
        raise ModelError(f"its member '{name}' does not end where it must.")
    # Files written on Windows name that system.
    system = info.create_system if info.create_system in (0, 3) else 3
    return _ENTRY.pack(
        b"PK\1\2", 20, system, 20, 0, wanted.compress_type, 0, 33, info.CRC, info.compress_size, info.file_size,
        len(name), 0, 0, 0, 0, wanted.external_attr, place,
    ) + name.encode()  # fmt: skip
