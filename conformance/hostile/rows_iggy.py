"""Rows of Iggy: what was recorded of its servers in the oldest, the classic and the newest dialect,
and by hand what the dialects between them have of their own (apache/iggy, crates 0.3 to 0.10).
"""

import struct
from collections.abc import Iterator

from conformance.hostile.mutation import IGGY, IGGY_V
from conformance.hostile.rows import Command, Protocol, Session, Talk, recorded
from conformance.raw import iggy
from conformance.raw.iggy import NEVER, identifier, text8

# Recorded frames that no row can be made of: made there, or about framing alone.
UNFIT = ("length", "name", "frame:")
STREAM = identifier("hostile")
PLACE = STREAM + identifier("tp")
GROUP = PLACE + identifier("grp")
USER = identifier("hostile-user")
ONE = b"\x01" + identifier("c") + PLACE  # A consumer, and the topic.
V_SESSION = Session(answer_bytes=272, answer_pos=264, frame_pos=184)


def iggy_command(code: int, payload: bytes) -> bytes:
    """A whole command of the classic framing."""
    return IGGY.with_length(struct.pack("<I", code) + payload)


def login(version: str | None) -> bytes:
    """A login of a crate's version; None: of the crates that say none."""
    payload = text8("iggy") + text8("iggy")
    if version is not None:
        payload += struct.pack("<I", len(version)) + version.encode() + bytes(4)
    return iggy_command(iggy.LOGIN, payload)


def indexed_send(head_bytes: int, partition: int) -> bytes:
    """SEND of crates 0.7 to 0.10: target, index, messages with a head of so many bytes."""
    header = struct.pack("<I", 4) + b"name" + struct.pack("<BI", 2, 5) + b"value"
    if head_bytes == 64:  # Keys have kinds, too.
        header = b"\x02" + header
    one = struct.pack("<Q16sQQQII", 0, bytes(16), 0, 0, 1_700_000_000_000_000, len(header), 5)
    one += bytes(head_bytes - len(one)) + b"hello" + header
    target = PLACE + struct.pack("<BBI", 2, 4, partition) + struct.pack("<I", 2)
    index = b"".join(struct.pack("<IIQ", 0, end, 0) for end in (len(one), 2 * len(one)))
    return iggy_command(iggy.SEND, struct.pack("<I", len(target)) + target + index + one * 2)


def _of_users() -> Iterator[tuple[str, int, bytes]]:
    yield "GET_USER", 31, USER
    yield "GET_USERS", 32, b""
    permissions = b"\x01" + struct.pack("<I", 11) + bytes(11)
    yield "CREATE_USER", 33, text8("hostile-user") + text8("secret") + b"\x01" + permissions
    yield "DELETE_USER", 34, USER
    yield "UPDATE_USER", 35, USER + b"\x01" + text8("hostile-user") + b"\x01\x01"
    yield "UPDATE_PERMISSIONS", 36, USER + permissions
    yield "CHANGE_PASSWORD", 37, USER + text8("secret") + text8("secret")
    yield "GET_TOKENS", 41, b""
    yield "CREATE_TOKEN", 42, text8("hostile-token") + struct.pack("<Q", 0)
    yield "DELETE_TOKEN", 43, text8("hostile-token")
    yield "LOGIN_WITH_TOKEN", 44, text8("no such token")


def _between() -> Iterator[tuple[str, int, bytes]]:
    """Commands of D1 to D3 about one topic."""
    yield "CREATE_STREAM", 202, struct.pack("<I", 0) + text8("hostile")
    settings = struct.pack("<BQQB", 1, NEVER, 0, 1) + text8("tp")
    yield "CREATE_TOPIC", 302, STREAM + struct.pack("<II", 0, 2) + settings
    yield "UPDATE_TOPIC", 304, PLACE + settings
    yield "POLL", 100, ONE + struct.pack("<IBQIB", 1, iggy.FIRST, 0, 10, 1)
    yield "STORE_OFFSET", 121, ONE + struct.pack("<IQ", 1, 0)
    yield "GET_OFFSET", 120, ONE + struct.pack("<I", 1)
    yield "DELETE_OFFSET", 122, ONE + struct.pack("<I", 1)
    yield "FLUSH", 102, PLACE + struct.pack("<IB", 1, 1)
    yield "CREATE_GROUP", 602, PLACE + struct.pack("<I", 0) + text8("grp")
    yield "DELETE_SEGMENTS", 503, PLACE + struct.pack("<II", 1, 1)


def _later() -> Iterator[tuple[str, int, bytes]]:
    """Commands of D4 and D5 about one topic."""
    yield "CREATE_STREAM", 202, text8("hostile")
    settings = struct.pack("<BQQB", 1, NEVER, 0, 1) + text8("tp")
    yield "CREATE_TOPIC", 302, STREAM + struct.pack("<I", 2) + settings
    yield "POLL", 100, ONE + b"\x01" + struct.pack("<IBQIB", 0, iggy.FIRST, 0, 10, 1)
    yield "STORE_OFFSET", 121, ONE + b"\x01" + struct.pack("<IQ", 0, 0)
    yield "GET_OFFSET", 120, ONE + b"\x01" + struct.pack("<I", 0)
    yield "DELETE_OFFSET", 122, ONE + b"\x01" + struct.pack("<I", 0)
    yield "FLUSH", 102, PLACE + struct.pack("<IB", 0, 1)
    yield "CREATE_GROUP", 602, PLACE + text8("grp")
    yield "DELETE_SEGMENTS", 503, PLACE + struct.pack("<II", 0, 1)
    yield "GET_CLUSTER_METADATA", 12, b""


def _same() -> Iterator[tuple[str, int, bytes]]:
    """Commands that all dialects with a login have alike."""
    yield from _of_users()
    yield "GET_SNAPSHOT", 11, b"\x02\x01\x01"
    yield "DESCRIBE_OPTIONS", 13, b""
    yield "SYNC_GROUP", 606, GROUP + bytes(8)
    yield "GET_STREAM", 200, STREAM
    yield "GET_STREAMS", 201, b""
    yield "PURGE_STREAM", 205, STREAM
    yield "DELETE_STREAM", 203, STREAM
    yield "GET_TOPIC", 300, PLACE
    yield "GET_TOPICS", 301, STREAM
    yield "PURGE_TOPIC", 305, PLACE
    yield "DELETE_TOPIC", 303, PLACE
    yield "CREATE_PARTITIONS", 402, PLACE + struct.pack("<I", 1)
    yield "DELETE_PARTITIONS", 403, PLACE + struct.pack("<I", 1)
    yield "GET_GROUP", 600, GROUP
    yield "GET_GROUPS", 601, PLACE
    yield "DELETE_GROUP", 603, GROUP
    yield "JOIN_GROUP", 604, GROUP
    yield "LEAVE_GROUP", 605, GROUP


def _made(dialect: str, rows: Iterator[tuple[str, int, bytes]]) -> list[Command]:
    return [Command(f"{dialect} {name}", iggy_command(code, body)) for name, code, body in rows]


def _recorded(dialect: str, path: str) -> Iterator[Command]:
    for row in recorded(path):
        if not row[0].startswith(UNFIT) and _is_hex(row[1]):
            yield Command(f"{dialect} {row[0]}, recorded", bytes.fromhex(row[1]))


def _is_hex(text: str) -> bool:
    return bool(text) and set(text) <= set("0123456789abcdef")


def _talks() -> Iterator[Talk]:
    yield Talk(IGGY, [], [], list(_recorded("D0", "iggy/d0-server-670a8ba.tsv")))
    for dialect, version, send in (
        ("D1", None, None),
        ("D2", "0.6.202", None),
        ("D3", "0.7.0", indexed_send(56, 1)),
        ("D4", "0.8.0", indexed_send(56, 0)),
        ("D5", "0.10.0", indexed_send(64, 0)),
    ):
        rows = _made(dialect, _same())
        rows += _made(dialect, _later() if dialect in ("D4", "D5") else _between())
        if send is None:
            rows += _recorded(dialect, "iggy/d2-server-0.4.300.tsv")
        else:
            rows += [Command(f"{dialect} SEND", send)] * 4
        yield Talk(IGGY, [login(version)], ["login_user"], rows, weight=3 if dialect == "D2" else 1)
    newest = list(_recorded("V", "iggy/v-server-0.9.0-edge.5.tsv"))
    (opening,) = (row.frame for row in newest if row.name.startswith("V LOGIN iggy/iggy"))
    yield Talk(IGGY_V, [opening], ["login_user"], newest, V_SESSION, weight=2)


def protocol() -> Protocol:
    """How to attack the Iggy listener: in every dialect."""
    return Protocol("iggy", list(_talks()))
