"""Frames of dialect W for tests; the conversation is that of `vtalk.py`."""

import struct

import xxhash

from tests.protocols.iggy.test_vsr import frame
from tests.protocols.iggy.vtalk import STREAM, TOPIC, Client

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


async def client_w(open_client, sdk: str = "0.12.0") -> Client:
    """Return a client that has logged in."""
    client = Client(await open_client("iggy"))
    await client.login(frame(operation=1, body=login_body(sdk)))
    return client


def option(key: str, value: bytes, *, kind: int = 2) -> bytes:
    """Return an entry of an options block."""
    entry = struct.pack("<BI", 2, len(key)) + key.encode()
    return entry + struct.pack("<BI", kind, len(value)) + value


def sent(
    *payloads: bytes, partition: int = 0, producer: tuple[int, int, int] | None = None
) -> bytes:
    """Return the body of a SEND; `producer` is an id, an epoch and the first sequence."""
    target = STREAM + TOPIC + b"\x02\x04" + struct.pack("<II", partition, len(payloads))
    frames, checksums = b"", b""
    for number, payload in enumerate(payloads):
        rest = bytes(16) + struct.pack("<IIIIQ", number, 0, 0, len(payload), 0) + payload
        checksum = struct.pack("<Q", xxhash.xxh3_64_intdigest(rest))
        frames, checksums = frames + checksum + rest, checksums + checksum
    known = struct.pack("<QQQQQ", 0, 0, 0, 1_000_000, 256 + len(frames))
    count = struct.pack("<I", len(payloads))
    section, covered = bytes(20), b""
    if producer is not None:
        number, epoch, sequence = producer
        section = struct.pack("<B3xQHxxI", 1, number, epoch, sequence)
        covered = struct.pack("<BQHI", 1, number, epoch, sequence)
    checksum = xxhash.xxh3_64_intdigest(known + count + covered + checksums)
    head = known + struct.pack("<Q", checksum) + count + section
    return struct.pack("<I", len(target)) + target + head.ljust(256, b"\0") + frames
