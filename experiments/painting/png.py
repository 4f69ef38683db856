"""What a PNG tells without its picture being decoded: whether it is whole, what its text says."""

from __future__ import annotations

import os
import struct
import zlib
from typing import BinaryIO

BEGIN = b"\x89PNG\r\n\x1a\n"
END = b"\x00\x00\x00\x00IEND\xaeB`\x82"
CHUNK = struct.Struct(">I4s")  # length and type; the content and its CRC follow


def is_whole(file: BinaryIO, size: int) -> bool:
    """Whether a PNG of `size` bytes begins here and has its end."""
    begin = file.read(len(BEGIN))
    file.seek(size - len(BEGIN) - len(END), os.SEEK_CUR)
    return begin == BEGIN and file.read(len(END)) == END


def read_text(file: BinaryIO, key: str) -> str:
    """The uncompressed international text (iTXt) of this key, which stands before the picture.

    Raises:
        ValueError: no PNG, or damaged.
        KeyError: it has no such text.
    """
    if file.read(len(BEGIN)) != BEGIN:
        raise ValueError("not a PNG")
    # Key, two zeros for "not compressed", no language and no translation of the key.
    begin = key.encode("latin-1") + b"\0\0\0\0\0"
    while len(head := file.read(CHUNK.size)) == CHUNK.size:
        length, kind = CHUNK.unpack(head)
        if kind in (b"IDAT", b"IEND"):
            raise KeyError(key)
        content = file.read(length)
        if file.read(4) != zlib.crc32(content, zlib.crc32(kind)).to_bytes(4):
            raise ValueError("a chunk of the PNG is damaged")
        if kind == b"iTXt" and content.startswith(begin):
            return content[len(begin) :].decode("utf-8")
    raise ValueError("the PNG is not whole")
