"""ZooKeeper's serialization: fields of `zookeeper.jute`, read and written by name of their kind.

A layout is a sequence of kinds; `read` and `write` follow the layout. Knows no request.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from braidlog.broker.coordination.nodes import Acl, Acls
from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.reader import BigEndianReader

I32: Final = struct.Struct(">i")
I64: Final = struct.Struct(">q")
BOOL: Final = struct.Struct("?")
NO_LENGTH: Final = -1  # Of a string, buffer or vector that is null.
# czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, dataLength, numChildren,
# pzxid
STAT: Final = struct.Struct(">qqqqiiiqiiq")
MULTI_HEADER: Final = struct.Struct(">i?i")  # type, done, err

Layout = Sequence[str]


class JuteReader(BigEndianReader):
    """Reads fields; ProtocolError for fields that the frame does not hold."""

    __slots__ = ()

    def i64(self) -> int:
        """Return a signed 64-bit integer."""
        return int(self.unpack(I64)[0])

    def boolean(self) -> bool:
        return self.u8() != 0

    def buffer(self) -> bytes | None:
        """Return a copy of a buffer; None for null. Raises ProtocolError."""
        size = self.i32()
        return None if size == NO_LENGTH else bytes(self.take(size))

    def string(self) -> str:
        """Return a text; null is empty. Bytes that are no UTF-8 become U+FFFD, as in Java: no path
        may hold that character.
        """
        return (self.buffer() or b"").decode(errors="replace")

    def vector(self, read: Callable[[], Any]) -> list[Any]:
        """Return a list; null is empty. A count above the bytes left ends with ProtocolError."""
        count = self.i32()
        if count > self.left or count < NO_LENGTH:
            raise ProtocolError(f"vector of {count} elements in {self.left} bytes")
        return [read() for _ in range(count)]

    def strings(self) -> list[str]:
        """Return a list of texts."""
        return self.vector(self.string)

    def acls(self) -> Acls:
        """Return an access list, without repeated entries."""
        return tuple(dict.fromkeys(self.vector(self._acl)))

    def _acl(self) -> Acl:
        return Acl(self.i32(), self.string(), self.string())


def buffer(value: bytes | None) -> bytes:
    """Return a buffer's bytes; None is null."""
    return I32.pack(NO_LENGTH) if value is None else I32.pack(len(value)) + value


def string(value: str) -> bytes:
    """Return a text's bytes."""
    return buffer(value.encode(errors="surrogateescape"))


def strings(values: Sequence[str]) -> bytes:
    """Return the bytes of a list of texts."""
    pack, parts = I32.pack, [value.encode(errors="surrogateescape") for value in values]
    return pack(len(parts)) + b"".join([pack(len(part)) + part for part in parts])


def acls(values: Acls) -> bytes:
    """Return the bytes of an access list."""
    entries = (I32.pack(acl.perms) + string(acl.scheme) + string(acl.id) for acl in values)
    return I32.pack(len(values)) + b"".join(entries)


READ: Final[Mapping[str, Callable[[JuteReader], Any]]] = {
    "int": JuteReader.i32,
    "long": JuteReader.i64,
    "bool": JuteReader.boolean,
    "buffer": JuteReader.buffer,
    "string": JuteReader.string,
    "strings": JuteReader.strings,
    "acls": JuteReader.acls,
    "stat": lambda reader: reader.unpack(STAT),
}
WRITE: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "int": I32.pack,
    "long": I64.pack,
    "bool": BOOL.pack,
    "buffer": buffer,
    "string": string,
    "strings": strings,
    "acls": acls,
    "stat": lambda stat: STAT.pack(*stat),
}


def read(reader: JuteReader, layout: Layout) -> tuple[Any, ...]:
    """Return the fields of a layout. Raises ProtocolError."""
    return tuple(READ[kind](reader) for kind in layout)


def write(layout: Layout, values: Sequence[Any]) -> bytes:
    """Return the bytes of a layout's fields."""
    return b"".join(WRITE[kind](value) for kind, value in zip(layout, values, strict=True))
