"""Sends a case in each version, and gives the answer in a form that two brokers can share.

Knows the generated tables of the product and sockets; no broker.
"""

import socket
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from braidlog.protocols.kafka.codec import read, write
from braidlog.protocols.kafka.fields import FieldReader, Writer
from braidlog.protocols.kafka.schema import NO_UUID, Struct
from braidlog.protocols.kafka.tables import APIS, FLEXIBLE
from braidlog.protocols.kafka.wire.fetch import FetchResponse
from braidlog.protocols.kafka.wire.produce import ProduceResponse

API_VERSIONS: Final = 18
MISSING_ID: Final = bytes(range(16))
WAIT_S: Final = 20
CLOSED: Final = "closed"
WHOLE: Final[Mapping[int, type[Struct]]] = {0: ProduceResponse, 1: FetchResponse}
# Fields that differ from broker to broker, and from run to run.
VOLATILE: Final = frozenset(
    [
        "throttle_time_ms",
        "host",
        "port",
        "cluster_id",
        "error_message",
        "member_id",
        "log_dir",
        "partition_size",
        "offset_lag",
        "total_bytes",
        "usable_bytes",
        "log_append_time_ms",
        "authorized_operations",
        "topic_authorized_operations",
        "cluster_authorized_operations",
        "batch_index_error_message",
        "api_keys",
        "supported_features",
        "finalized_features",
        "finalized_features_epoch",
        "documentation",
        "synonyms",
        "log_start_offset",
        "auth_bytes",
        "session_lifetime_ms",
        "endpoints",
        "producer_id",
        "leader",
        "client_host",
    ]
)
SIZE: Final = struct.Struct(">i")


def ask(address: tuple[str, int], version: int, body: Struct) -> str:
    """Return the body of the answer in hexadecimal, or CLOSED."""
    with socket.create_connection(address, WAIT_S) as connection:
        return ask_on(connection, version, body)


def ask_on(connection: socket.socket, version: int, body: Struct) -> str:
    """Return the body of the answer on an open connection in hexadecimal, or CLOSED."""
    connection.sendall(frame_of(version, body))
    prefix = _exactly(connection, SIZE.size)
    answer = None if prefix is None else _exactly(connection, SIZE.unpack(prefix)[0])
    return body_of(body.KEY, version, answer)


def frame_of(version: int, body: Struct) -> bytes:
    """Return a request."""
    key, out = body.KEY, Writer()
    write(out, body, version)
    head = struct.pack(">hhih6s", key, version, 7, 6, b"golden")
    head += b"\0" * ((key, version) in FLEXIBLE)
    frame = head + b"".join(map(bytes, out.parts()))
    return SIZE.pack(len(frame)) + frame


def body_of(key: int, version: int, answer: bytes | None) -> str:
    """Return the body of an answer without its size in hexadecimal; None is the end of the
    connection.
    """
    if answer is None:
        return CLOSED
    has_tags = (key, version) in FLEXIBLE and key != API_VERSIONS
    return answer[SIZE.size + has_tags :].hex()


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return data


def decoded(key: int, version: int, answer: str) -> Struct:
    """Return the answer as the structure of its table."""
    kind = WHOLE.get(key) or APIS[key].reply
    reader = FieldReader(memoryview(bytes.fromhex(answer)))
    value = read(kind, reader, version)
    assert not reader.left, (key, version)
    return value


def facts(value: Any, names: Mapping[bytes, str]) -> Any:
    """Return an answer as plain values without the volatile fields, lists in a fixed order; `names`
    replaces the ids of topics.
    """
    if isinstance(value, Struct):
        return {
            field.name: _name(getattr(value, field.name), names)
            if field.name == "topic_id"
            else facts(getattr(value, field.name), names)
            for field in value.FIELDS
            if field.name not in VOLATILE
        }
    if isinstance(value, memoryview):
        return bytes(value).hex()
    if isinstance(value, list | tuple):
        return sorted((facts(part, names) for part in value), key=repr)
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def _name(topic_id: bytes, names: Mapping[bytes, str]) -> str:
    """Return the name of a topic's id; an id that nobody knows is shown as it is."""
    if topic_id in (NO_UUID, MISSING_ID):
        return topic_id.hex()
    return names.get(topic_id, "another topic")


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (path, their value, our value) of each difference of two answers."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs:
            yield from differences(theirs[name], ours[name], f"{path}.{name}".strip("."))
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for before, after in zip(theirs, ours, strict=True):
            yield from differences(before, after, path)
    elif isinstance(theirs, list) and isinstance(ours, list):
        yield path, f"{len(theirs)} items", f"{len(ours)} items"
    elif theirs != ours:
        yield path, str(theirs), str(ours)
