"""Frames of dialect W for tests; the conversation is that of `vtalk.py`."""

import struct

import xxhash

from tests.protocols.iggy.test_vsr import frame
from tests.protocols.iggy.vtalk import STREAM, TOPIC, VClient

SEND, STORE, UPDATE_RESOURCE = 160, 161, 150
SECRET = bytes(range(32))


def login_body(sdk: str = "0.12.0", version: tuple[int, int, int] = (0, 12, 0)) -> bytes:
    """Return a login of root by password."""
    major, minor, patch = version
    number = struct.pack("<I", major << 20 | minor << 10 | patch)
    name = sdk.encode()
    secret = SECRET if version >= (0, 12, 0) else b""
    return b"".join(
        (number, b"\x08rust-sdk", bytes([len(name)]), name, secret, b"\x04iggy\x04iggy", bytes(4))
    )


async def client_w(open_client, sdk: str = "0.12.0", client_id: bytes = b"") -> VClient:
    """Return a client that has logged in."""
    client = VClient(await open_client("iggy"), client_id)
    await client.login(frame(operation=1, body=login_body(sdk)))
    return client


def binding(client_id: bytes, session: int, secret: bytes = SECRET) -> bytes:
    """Return the body of a BIND_SESSION."""
    version = login_body()[: login_body().index(SECRET)]
    return version + client_id + struct.pack("<QQ", session, 0) + secret


def option(key: str, value: bytes, *, kind: int = 2) -> bytes:
    """Return an entry of an options block."""
    entry = struct.pack("<BI", 2, len(key)) + key.encode()
    return entry + struct.pack("<BI", kind, len(value)) + value


def sent(
    *payloads: bytes,
    partition: int = 0,
    producer: tuple[int, int, int] | None = None,
    topic: bytes = TOPIC,
    partitioning: bytes | None = None,
    section: bytes | None = None,
) -> bytes:
    """Return the body of a SEND; `producer` is an id, an epoch and the first sequence.

    `section` replaces the producer's bytes, which the checksum covers as `producer` says.
    """
    if partitioning is None:
        partitioning = b"\x02\x04" + struct.pack("<I", partition)
    target = STREAM + topic + partitioning + struct.pack("<I", len(payloads))
    frames, checksums = b"", b""
    for number, payload in enumerate(payloads):
        rest = bytes(16) + struct.pack("<IIIIQ", number, 0, 0, len(payload), 0) + payload
        checksum = struct.pack("<Q", xxhash.xxh3_64_intdigest(rest))
        frames, checksums = frames + checksum + rest, checksums + checksum
    known = struct.pack("<QQQQQ", 0, 0, 0, 1_000_000, 256 + len(frames))
    count = struct.pack("<I", len(payloads))
    written, covered = bytes(20), b""
    if producer is not None:
        number, epoch, sequence = producer
        written = struct.pack("<B3xQHxxI", 1, number, epoch, sequence)
        covered = struct.pack("<BQHI", 1, number, epoch, sequence)
    checksum = xxhash.xxh3_64_intdigest(known + count + covered + checksums)
    head = known + struct.pack("<Q", checksum) + count + (section or written)
    return struct.pack("<I", len(target)) + target + head.ljust(256, b"\0") + frames
