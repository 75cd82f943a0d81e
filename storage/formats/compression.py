"""Every compression of a stored body, bounded: no body unpacks to more than the limit.

Knows streams of bytes only; a protocol's codec knows the protocol's numbers of compressions. isal
does gzip, zlib and CRC-32 if installed (same streams and values, several times faster).
"""

import mmap
import struct
import zlib
from collections.abc import Callable
from typing import Any, Protocol, cast

import cramjam
import xxhash

from braidlog.storage.errors import RecordTooLarge, UnreadableBody
from braidlog.storage.formats.api import Buffer
from braidlog.storage.large import LARGE_BYTES_MIN, check_large

_deflate: Any
_DEFLATE_ERRORS: tuple[type[Exception], ...]

try:
    from isal import isal_zlib

    _deflate = isal_zlib
    _DEFLATE_ERRORS = (zlib.error, _deflate.error)
    DEFLATE_LEVEL = 2  # isal's own scale, 0 to 3: 277 MB/s at ratio 3.4 on JSON.
except ImportError:
    _deflate = zlib
    _DEFLATE_ERRORS = (zlib.error,)
    DEFLATE_LEVEL = 1  # zlib's fastest, because a producer waits for re-packing.

crc32: Callable[..., int] = _deflate.crc32

# Unpacked size limit of a stored body, whatever size the body declares. Kafka and Pulsar bound the
# packed size only; 64 MiB is twelve times the largest Pulsar message, and bounds memory per reader.
INFLATED_BYTES_MAX = 64 << 20

# Members of a gzip stream. Producers write a single member; each costs a copy of the bytes after
# it.
GZIP_MEMBERS_MAX = 64

_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib's wbits for a gzip wrapper with a 32 KiB window
_ZLIB_WINDOW = 15

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEAD = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest compatible version
_XERIAL_BLOCK = 32 << 10  # snappy-java's block size

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_DESCRIPTOR = b"\x60\x40"  # version 1, independent blocks of 64 KiB, nothing optional
_LZ4_BLOCK = 64 << 10
_LZ4_STORED = 0x80000000  # top bit of a block's size: the block is not compressed
_LZ4_BLOCK_SIZES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_LZ4_RATIO_MAX = 255  # a byte of an LZ4 block adds at most 255 to a length
_LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM, _LZ4_BLOCK_CHECKSUM, _LZ4_DICTIONARY = 8, 4, 16, 1

# Larger output goes into mapped pages, which take memory only once written: the declared size is
# only the sender's claim. For smaller output, zeroed memory is three times as fast.
_LAZY_BYTES_MIN = 4 << 20

_PIECE_BYTES = 4 << 20  # of a large deflate stream

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_REPEATED, _ZSTD_COMPRESSED = 1, 2  # kinds of blocks; 0 is not compressed
_ZSTD_BLOCK_MAX = 128 << 10

_U32_BIG = struct.Struct(">I")
_U32_LITTLE = struct.Struct("<I")


class _Inflater(Protocol):
    """Interface of zlib.decompressobj."""

    eof: bool
    unconsumed_tail: bytes

    def decompress(self, data: Buffer, max_length: int) -> bytes: ...


def sliceable(unpacked: Buffer) -> bytes:
    """Return unpacked data as bytes. Mapped pages are returned unchanged: their slices are
    bytes.
    """
    return cast("bytes", unpacked) if isinstance(unpacked, mmap.mmap) else bytes(unpacked)


def gunzip(data: Buffer, size_max: int) -> Buffer:
    """Unpack gzip (RFC 1952); consecutive members are joined, padding is ignored.

    Raises:
        UnreadableBody: not gzip, broken or cut short.
        RecordTooLarge: more than size_max bytes.
    """
    parts: list[Buffer] = []
    left = size_max
    for _ in range(GZIP_MEMBERS_MAX):
        part, data = _inflate(data, left, size_max, _GZIP_WINDOW)
        parts.append(part)
        left -= len(part)
        check_large(size_max - left)
        if data[:2] != _GZIP_MAGIC:
            return b"".join(parts) if len(parts) > 1 else part
    raise UnreadableBody(f"gzip of more than {GZIP_MEMBERS_MAX} members")


def unsnappy(data: Buffer, size_max: int) -> Buffer:
    """Unpack both forms of snappy that Kafka producers send: snappy-java's framing, or a raw block.

    Raises:
        UnreadableBody: neither form, broken or cut short.
        RecordTooLarge: more than size_max bytes.
    """
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        return _unsnappy_raw(view, size_max)
    parts: list[Buffer] = []
    left, pos, end = size_max, len(_XERIAL_HEAD), len(view)
    while pos + 4 <= end:
        size = _U32_BIG.unpack_from(view, pos)[0]
        if size > end - pos - 4:
            break
        parts.append(_unsnappy_raw(view[pos + 4 : pos + 4 + size], left))
        left -= len(parts[-1])
        check_large(size_max - left)
        pos += 4 + size
    if pos != end:
        raise UnreadableBody("snappy framing is cut short")
    return b"".join(parts)


def unlz4(data: Buffer, size_max: int) -> Buffer:
    """Unpack an LZ4 frame of any valid descriptor; the header checksum may be that of `lz4`.

    Raises:
        UnreadableBody: not an LZ4 frame, broken or cut short.
        RecordTooLarge: more than size_max bytes (or broken, if the frame could hold as much).
    """
    view = memoryview(data)
    try:
        descriptor_end, block_max, trailer = _lz4_descriptor(view)
        end, bound = _lz4_blocks(view, descriptor_end + 1, block_max, trailer)
    except (struct.error, IndexError) as error:
        raise UnreadableBody("LZ4 frame is cut short") from error
    frame = bytearray(view[:end])
    frame[descriptor_end] = _lz4_checksum(view[4:descriptor_end])
    try:
        return _unpack_into(cramjam.lz4.decompress_into, frame, min(bound, size_max))
    except UnreadableBody as error:
        if bound > size_max:
            raise RecordTooLarge(bound, size_max) from error
        raise


def unzstd(data: Buffer, size_max: int) -> Buffer:
    """Unpack a zstd frame (RFC 8878); its size need not be declared.

    Raises:
        UnreadableBody: not a zstd frame, broken or cut short.
        RecordTooLarge: the frame may hold more than size_max bytes, and does not unpack to less.
    """
    view = memoryview(data)
    try:
        bound = _zstd_bound(view)
    except (struct.error, IndexError) as error:
        raise UnreadableBody("zstd frame is cut short") from error
    try:
        return _unpack_into(cramjam.zstd.decompress_into, view, min(bound, size_max))
    except UnreadableBody as error:
        if bound > size_max:
            raise RecordTooLarge(bound, size_max) from error
        raise


def decompress_block(codec: str, data: Buffer, size: int, size_max: int) -> Buffer:
    """Unpack a Pulsar payload (`lz4`, `zlib`, `zstd`, `snappy`) to the size its metadata declares.

    Raises:
        UnreadableBody: the stream is broken, or unpacks to another size than declared.
        RecordTooLarge: the declared size is above size_max.
    """
    if size > size_max:
        raise RecordTooLarge(size, size_max)
    try:
        unpacked = _BLOCKS[codec](data, size)
    except RecordTooLarge as error:
        raise UnreadableBody(f"{codec}: more than the declared {size} bytes") from error
    if len(unpacked) != size:
        raise UnreadableBody(f"{codec}: {len(unpacked)} bytes, {size} were declared")
    return unpacked


def gzip(data: Buffer) -> bytes:
    """Pack a gzip member (RFC 1952) without name or time."""
    packer = _deflate.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    return bytes(packer.compress(data) + packer.flush())


def gzip_smaller(data: Buffer) -> bytes:
    """Pack the same as small as zlib packs by default. Several times as slow."""
    packer = zlib.compressobj(wbits=_GZIP_WINDOW)
    return packer.compress(data) + packer.flush()


def snappy(data: Buffer) -> bytes:
    """Pack snappy in snappy-java's framing, which every Kafka 0.8 client with snappy reads."""
    view = memoryview(data)
    parts = [_XERIAL_HEAD]
    for pos in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[pos : pos + _XERIAL_BLOCK]))
        parts += (_U32_BIG.pack(len(block)), block)
    return b"".join(parts)


def lz4(data: Buffer) -> bytes:
    """Pack an LZ4 frame of independent 64 KiB blocks, for Kafka's message format 0.

    The header checksum covers the magic and the descriptor, where the LZ4 frame format says the
    descriptor alone (KAFKA-3160).
    """
    return _lz4_frame(data, _LZ4_MAGIC + _LZ4_DESCRIPTOR)


def lz4_frame(data: Buffer) -> bytes:
    """Pack the same with the header checksum of the LZ4 frame format, for Kafka's format 2."""
    return _lz4_frame(data, _LZ4_DESCRIPTOR)


def zstd(data: Buffer) -> bytes:
    """Pack a zstd frame (RFC 8878)."""
    return bytes(cramjam.zstd.compress(data))


def compress_block(codec: str, data: Buffer) -> bytes:
    """Pack a Pulsar payload (`lz4`, `zlib`, `zstd`, `snappy`)."""
    return _PACKERS[codec](data)


def _lz4_frame(data: Buffer, checked: bytes) -> bytes:
    view = memoryview(data)
    parts: list[Buffer] = [_LZ4_MAGIC, _LZ4_DESCRIPTOR, bytes([_lz4_checksum(checked)])]
    for pos in range(0, len(view), _LZ4_BLOCK):
        plain = view[pos : pos + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (_U32_LITTLE.pack(len(block)), block)
        else:
            parts += (_U32_LITTLE.pack(len(plain) | _LZ4_STORED), plain)
    parts.append(bytes(4))
    return b"".join(parts)


def _inflate(data: Buffer, left: int, size_max: int, window: int) -> tuple[Buffer, bytes]:
    """Unpack a deflate stream of at most `left` bytes; return the data and the bytes after the
    stream.
    """
    unpacker = _deflate.decompressobj(window)
    try:
        part: Buffer = unpacker.decompress(data, min(left + 1, LARGE_BYTES_MIN))
        if len(part) == LARGE_BYTES_MIN <= left and not unpacker.eof:
            part = _inflate_large(unpacker, part, left + 1)
    except _DEFLATE_ERRORS as error:
        raise UnreadableBody(f"not a deflate stream: {error}") from error
    if len(part) > left:
        raise RecordTooLarge(size_max + len(part) - left, size_max)
    if not unpacker.eof:
        raise UnreadableBody("deflate stream is cut short")
    return part, unpacker.unused_data


def _inflate_large(unpacker: _Inflater, begun: Buffer, size_max: int) -> Buffer:
    """Unpack the rest of a stream whose first bytes are `begun`, `size_max` in all at most.

    Unpacks in pieces, so that the result is in memory only once.
    """
    check_large(size_max)
    out, pos = mmap.mmap(-1, size_max), len(begun)
    out[:pos] = begun
    while pos < size_max and not unpacker.eof:
        piece = unpacker.decompress(unpacker.unconsumed_tail, min(_PIECE_BYTES, size_max - pos))
        if not piece:
            break
        out[pos : pos + len(piece)] = piece
        pos += len(piece)
    out.resize(pos)
    return cast("Buffer", out)


def _unzlib(data: Buffer, size: int) -> Buffer:
    return _inflate(data, size, size, _ZLIB_WINDOW)[0]


def _unsnappy_raw(data: Buffer, size_max: int) -> Buffer:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
    except cramjam.DecompressionError as error:
        raise UnreadableBody(f"not snappy: {error}") from error
    if size > size_max:
        raise RecordTooLarge(size, size_max)
    return _unpack_into(cramjam.snappy.decompress_raw_into, data, size)


def _unlz4_block(data: Buffer, size: int) -> Buffer:
    return _unpack_into(cramjam.lz4.decompress_block_into, data, size)


def _unzstd(data: Buffer, size: int) -> Buffer:
    return _unpack_into(cramjam.zstd.decompress_into, data, size)


def _unpack_into(function: Callable[[Buffer, Any], Any], data: Buffer, size: int) -> Buffer:
    """Unpack into a buffer of `size` bytes. Raises UnreadableBody if the buffer is too small, or on
    bad data.

    The unwritten pages of a large buffer take no memory, and an error does not keep the buffer
    alive.
    """
    check_large(size)
    out = bytearray(size) if size < _LAZY_BYTES_MIN else mmap.mmap(-1, size)
    try:
        count = function(data, out)
    except cramjam.DecompressionError as error:
        del out  # The frame lives as long as the error.
        raise UnreadableBody(f"cannot be unpacked into {size} bytes: {error}") from None
    if isinstance(out, mmap.mmap) and count:
        out.resize(count)
        return cast("Buffer", out)
    return memoryview(out)[:count]


def _lz4_checksum(data: Buffer) -> int:
    """Return the second byte of xxHash32 with seed 0 (LZ4 frame format, header checksum)."""
    return xxhash.xxh32_intdigest(data, 0) >> 8 & 0xFF


def _lz4_descriptor(view: memoryview) -> tuple[int, int, int]:
    """Return the position of the header checksum, largest block, bytes after the end mark."""
    flags, block = view[4], view[5]
    block_max = _LZ4_BLOCK_SIZES.get(block >> 4 & 7)
    if view[:4] != _LZ4_MAGIC or flags >> 6 != 1 or block_max is None or flags & _LZ4_DICTIONARY:
        raise UnreadableBody("not an LZ4 frame that can be read")
    end = 6 + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    if view[end] not in (_lz4_checksum(view[4:end]), _lz4_checksum(view[:end])):
        raise UnreadableBody("LZ4 header checksum is wrong")
    return end, block_max, 4 if flags & _LZ4_CONTENT_CHECKSUM else 0


def _lz4_blocks(view: memoryview, pos: int, block_max: int, trailer: int) -> tuple[int, int]:
    """Return the end of the frame, and the limit of the blocks' unpacked size."""
    block_trailer = 4 if view[4] & _LZ4_BLOCK_CHECKSUM else 0
    bound = 0
    while size := _U32_LITTLE.unpack_from(view, pos)[0]:
        packed = size & ~_LZ4_STORED
        bound += packed if size & _LZ4_STORED else min(block_max, packed * _LZ4_RATIO_MAX)
        pos += 4 + packed + block_trailer
    return pos + 4 + trailer, bound


def _zstd_bound(view: memoryview) -> int:
    """Return the limit of a zstd frame's unpacked size (RFC 8878, sections 3.1.1 and 4)."""
    if view[:4] != _ZSTD_MAGIC:
        raise UnreadableBody("not a zstd frame")
    descriptor = view[4]
    single = descriptor >> 5 & 1
    content_size = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    pos = 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + content_size
    bound, is_last = 0, False
    while not is_last:
        block = int.from_bytes(view[pos : pos + 3], "little")
        if pos + 3 > len(view):
            raise UnreadableBody("zstd frame is cut short")
        is_last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
        bound += _ZSTD_BLOCK_MAX if kind == _ZSTD_COMPRESSED else size
        pos += 3 + (1 if kind == _ZSTD_REPEATED else size)
    return bound


_BLOCKS: dict[str, Callable[[Buffer, int], Buffer]] = {
    "lz4": _unlz4_block,
    "zlib": _unzlib,
    "zstd": _unzstd,
    "snappy": _unsnappy_raw,
}


def _zlib(data: Buffer) -> bytes:
    packer = _deflate.compressobj(DEFLATE_LEVEL, zlib.DEFLATED, _ZLIB_WINDOW)
    return bytes(packer.compress(data) + packer.flush())


_PACKERS: dict[str, Callable[[Buffer], bytes]] = {
    "lz4": lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False)),
    "zlib": _zlib,
    "zstd": zstd,
    "snappy": lambda data: bytes(cramjam.snappy.compress_raw(data)),
}
