"""SENDs of Iggy's dialects as rows, and the frames behind all of Iggy's rows.

Bad headers of a message stand behind correct lengths, index and checksums, so that they reach the
parser of headers.
"""

import struct
from collections.abc import Callable, Iterator

import xxhash

from conformance.clients.raw import iggy
from conformance.clients.raw.iggy import headers_block, identifier
from conformance.hostile.mutation import IGGY
from conformance.hostile.rows import CommandRow

STREAM = identifier("hostile")
PLACE = STREAM + identifier("tp")
GROUP = PLACE + identifier("grp")
VSR_HEAD = BATCH_HEAD = 256
V_SEND = 160
PAYLOAD = b"hello"
SENT_US = 1_700_000_000_000_000
OLD = headers_block([(b"name", iggy.STRING_KIND, b"value"), (b"n", iggy.UINT32_KIND, bytes(4))])[4:]
TYPED = b"".join(b"\x02" + part for part in (OLD[:18], OLD[18:]))  # Keys have kinds, too.
# An idempotent producer of W, in the head of a batch and as its checksum covers the producer.
PRODUCER = struct.pack("<B3xQHxxI", 1, 7, 0, 0), struct.pack("<BQHI", 1, 7, 0, 0)
TO_PARTITION = 2
BALANCED, BY_KEY = b"\x01\x00", b"\x03\x03key"


def iggy_command(code: int, payload: bytes) -> bytes:
    """Return a whole command of the classic framing."""
    return IGGY.with_length(struct.pack("<I", code) + payload)


def vsr_command(operation: int, body: bytes, code: int = 0) -> bytes:
    """Return a whole command of the newest dialect; the session is inserted later."""
    head = bytearray(VSR_HEAD)
    struct.pack_into("<I", head, 48, VSR_HEAD + len(body))
    head[60], head[128], head[168], head[176] = 5, 1, 1, operation
    if operation == 2:
        struct.pack_into("<I", head, 196, code)
    return bytes(head) + body


def of_dialect(dialect: str) -> Iterator[CommandRow]:
    """Yield a dialect's SENDs in several rows, because SENDs have the most fields."""
    newest, first = dialect in ("D4", "D5", "V", "W"), struct.pack("<BB", 2, 4)
    to_first = first + struct.pack("<I", 0 if newest else 1)
    for name, to in (("partition", to_first), ("balanced", BALANCED), ("key", BY_KEY)):
        make = _maker(dialect, to)
        headers = TYPED if dialect in ("D5", "V", "W") else OLD
        yield CommandRow(f"{dialect} SEND to {name}", make(headers), headers, make)


def _maker(dialect: str, to: bytes) -> Callable[[bytes], bytes]:
    if dialect in ("V", "W"):
        producer = PRODUCER if dialect == "W" and to[0] == TO_PARTITION else (b"", b"")
        return lambda headers: vsr_command(V_SEND, _target(to) + _batch(headers, *producer))
    if dialect in ("D3", "D4", "D5"):
        head_bytes = 64 if dialect == "D5" else 56
        return lambda headers: iggy_command(iggy.SEND, _target(to) + _indexed(headers, head_bytes))
    return lambda headers: iggy_command(iggy.SEND, PLACE + to + 2 * _old(headers))


def _target(to: bytes) -> bytes:
    target = PLACE + to + struct.pack("<I", 2)
    return struct.pack("<I", len(target)) + target


def _old(headers: bytes) -> bytes:
    sizes = struct.pack("<I", len(headers)), struct.pack("<I", len(PAYLOAD))
    return bytes(16) + sizes[0] + headers + sizes[1] + PAYLOAD


def _indexed(headers: bytes, head_bytes: int) -> bytes:
    message = struct.pack("<Q16sQQQII", 0, bytes(16), 0, 0, SENT_US, len(headers), len(PAYLOAD))
    message += bytes(head_bytes - len(message)) + PAYLOAD + headers
    index = b"".join(struct.pack("<IIQ", 0, end, 0) for end in (len(message), 2 * len(message)))
    return index + message * 2


def _batch(headers: bytes, producer: bytes, checked_producer: bytes) -> bytes:
    frames, sums = b"", b""
    for number in range(2):
        sizes = len(headers), len(PAYLOAD)
        checked = struct.pack("<16sIIIIQ", bytes(16), number, 0, *sizes, 0) + PAYLOAD + headers
        checksum = struct.pack("<Q", xxhash.xxh3_64_intdigest(checked))
        frames, sums = frames + checksum + checked, sums + checksum
    known = struct.pack("<QQQQQ", 0, 0, 0, SENT_US, BATCH_HEAD + len(frames))
    count = struct.pack("<I", 2)
    checksum = xxhash.xxh3_64_intdigest(known + count + checked_producer + sums)
    head = known + struct.pack("<Q", checksum) + count + producer
    return head.ljust(BATCH_HEAD, b"\0") + frames
