"""Rows of Iggy: every command of every dialect, in the dialect's own layout, and recorded frames
for servers of the oldest, a classic and the newest dialect (apache/iggy, crates 0.0.60 to 0.12).

A connection begins with frames that show its dialect to the broker, so that the bad frames reach
that dialect's parsers; `rows_iggy_sends.py` has the messages.
"""

import struct
from collections.abc import Iterator, Sequence

from conformance.clients.raw import iggy
from conformance.clients.raw.iggy import NEVER, identifier, text8
from conformance.hostile import rows_iggy_sends as sends
from conformance.hostile.mutation import IGGY, IGGY_V
from conformance.hostile.rows import (
    CommandRow,
    ConnectionKind,
    OpeningQuestion,
    Protocol,
    SessionField,
    recorded,
)
from conformance.hostile.rows_iggy_sends import GROUP, PLACE, STREAM, iggy_command, vsr_command

Row = tuple[str, int, bytes]  # Name, code, payload.

# Recorded frames that cannot become rows: invalid there, or about framing alone.
UNFIT = ("length", "name", "frame:")
USER = identifier("hostile-user")
NOWHERE = identifier("nowhere") * 2  # A missing topic.
ZERO, ONE = struct.pack("<I", 0), struct.pack("<I", 1)
BARE_CONSUMER = b"\x01" + ONE
CONSUMER = b"\x01" + identifier("c")
V_SESSION = SessionField(answer_pos=264, frame_pos=184)
# Places in the headers of V and W; an answer repeats the request's mark.
SIZE_POS, REQUEST_MARK_POS, REPLY_MARK_POS, INCARNATION_POS, HEADER_BYTES = 48, 144, 128, 200, 256
ROUTE_MARK = b"which partition?"

# Settings of a topic, behind the number of its partitions.
EXPIRY = ONE + text8("tp")
EXPIRY_AND_SIZE = struct.pack("<BIQB", 1, 0, NEVER, 1) + text8("tp")
LATER_SETTINGS = struct.pack("<BQQB", 1, NEVER, 0, 1) + text8("tp")

# Frames that show the dialect of a client without a version: the api (as in the metrics), the
# frame.
SHOWS = {
    "D0": ("get_streams", iggy_command(201, b"")),
    "D0 with login": ("get_group", iggy_command(600, NOWHERE + ONE)),
    "D1a": ("update_topic", iggy_command(304, NOWHERE + EXPIRY)),
    "D1b": ("update_topic", iggy_command(304, NOWHERE + EXPIRY_AND_SIZE)),
}
OFFSETS_SHOW = ("get_consumer_offset", iggy_command(120, CONSUMER + NOWHERE + ONE))
VERSIONS = {"D2": "0.6.202", "D3": "0.7.0", "D4": "0.8.0", "D5": "0.10.0"}

# Operations of V by the commands' codes; the others go as operation 2.
CARRIED = (
    *(202, 204, 203, 205, 302, 304, 303, 305, 402, 403, 503),
    *(602, 603, 33, 35, 34, 37, 36, 42, 43, 604, 605, 121, 122, 39),
)
V_OPERATIONS = dict(zip(CARRIED, (*range(128, 150), 161, 162, 3), strict=True))
# Commands that W has no more, and the operation that does their work.
RETIRED_IN_W = (35, 102, 204, 205, 304, 305)
W_OPERATIONS = {**V_OPERATIONS, 16: 150}
W_VERSION = struct.pack("<I", 12 << 10) + text8("hostile") + text8("0.12.0")
SECRET = bytes(32)


def login(version: str | None) -> bytes:
    """Return a login with a crate's version; None: of the crates without a version."""
    payload = text8("iggy") + text8("iggy")
    if version is not None:
        payload += struct.pack("<I", len(version)) + version.encode() + bytes(4)
    return iggy_command(iggy.LOGIN, payload)


def _alike() -> Iterator[Row]:
    """Yield the commands that have the same layout in all dialects."""
    yield "PING", 1, b""
    yield "GET_STATS", 10, b""
    yield "GET_ME", 20, b""
    yield "GET_CLIENT", 21, ONE
    yield "GET_CLIENTS", 22, b""
    yield "GET_STREAM", 200, STREAM
    yield "GET_STREAMS", 201, b""
    yield "DELETE_STREAM", 203, STREAM
    yield "GET_TOPIC", 300, PLACE
    yield "GET_TOPICS", 301, STREAM
    yield "DELETE_TOPIC", 303, PLACE
    yield "CREATE_PARTITIONS", 402, PLACE + ONE
    yield "DELETE_PARTITIONS", 403, PLACE + ONE
    yield "GET_GROUPS", 601, PLACE
    yield "LOGOUT", 39, b""


def _reading(consumer: bytes, partition: bytes) -> Iterator[Row]:
    target = consumer + PLACE + partition
    yield "POLL", 100, target + struct.pack("<BQIB", iggy.FIRST, 0, 10, 1)
    yield "GET_OFFSET", 120, target
    yield "STORE_OFFSET", 121, target + bytes(8)


def _groups(group: bytes, created: bytes) -> Iterator[Row]:
    yield "GET_GROUP", 600, PLACE + group
    yield "CREATE_GROUP", 602, PLACE + created
    yield "DELETE_GROUP", 603, PLACE + group
    yield "JOIN_GROUP", 604, PLACE + group
    yield "LEAVE_GROUP", 605, PLACE + group


def _naming(number: bytes, settings: bytes) -> Iterator[Row]:
    """Yield commands that create and change streams and topics; `number`: chosen by the client."""
    yield "CREATE_STREAM", 202, number + text8("hostile")
    yield "UPDATE_STREAM", 204, STREAM + text8("hostile")
    yield "CREATE_TOPIC", 302, STREAM + number + struct.pack("<I", 2) + settings
    yield "UPDATE_TOPIC", 304, PLACE + settings


def _of_users(expiry: bytes) -> Iterator[Row]:
    permissions = b"\x01" + struct.pack("<I", 11) + bytes(11)
    yield "GET_USER", 31, USER
    yield "GET_USERS", 32, b""
    yield "CREATE_USER", 33, text8("hostile-user") + text8("secret") + b"\x01" + permissions
    yield "DELETE_USER", 34, USER
    yield "UPDATE_USER", 35, USER + b"\x01" + text8("hostile-user") + b"\x01\x01"
    yield "UPDATE_PERMISSIONS", 36, USER + permissions
    yield "CHANGE_PASSWORD", 37, USER + text8("secret") + text8("secret")
    yield "GET_TOKENS", 41, b""
    yield "CREATE_TOKEN", 42, text8("hostile-token") + expiry
    yield "DELETE_TOKEN", 43, text8("hostile-token")
    yield "LOGIN_WITH_TOKEN", 44, text8("no such token")
    yield "PURGE_STREAM", 205, STREAM
    yield "PURGE_TOPIC", 305, PLACE
    yield "GET_SNAPSHOT", 11, b"\x02\x01\x01"


def _rows(dialect: str) -> Iterator[Row]:
    """Yield the commands of a classic dialect, except SEND."""
    is_oldest, counts_from_0 = dialect.startswith("D0"), dialect in ("D4", "D5", "V")
    yield from _alike()
    partition = b"\x01" + ZERO if counts_from_0 else ONE
    yield from _reading(BARE_CONSUMER if is_oldest else CONSUMER, partition)
    number = b"" if counts_from_0 else ONE if is_oldest or dialect == "D1a" else ZERO
    settings = {"D1a": EXPIRY, "D1b": EXPIRY_AND_SIZE}.get(dialect, LATER_SETTINGS)
    yield from _naming(number, EXPIRY if is_oldest else settings)
    group = ONE if is_oldest else GROUP.removeprefix(PLACE)
    yield from _groups(group, ONE if is_oldest else number + text8("grp"))
    if is_oldest:
        yield "LOGIN_USER", 38, text8("iggy") * 2
        return
    yield from _of_users(bytes(4) if dialect in ("D1a", "D1b") else bytes(8))
    yield "LOGIN_USER", 38, login(VERSIONS.get(dialect))[8:]
    if dialect in ("D1a", "D1b"):
        return
    yield "FLUSH", 102, PLACE + (ZERO if counts_from_0 else ONE) + b"\x01"
    yield "DELETE_OFFSET", 122, CONSUMER + PLACE + partition
    if dialect != "D2":
        yield "DELETE_SEGMENTS", 503, PLACE + (ZERO if counts_from_0 else ONE) + ONE
    if counts_from_0:
        yield "GET_CLUSTER_METADATA", 12, b""
    yield "SYNC_GROUP", 606, GROUP
    yield "DESCRIBE_OPTIONS", 13, b"\x01"


def _newest_rows() -> Iterator[Row]:
    """Yield V's commands without a recorded frame, and those that differ from D5's."""
    changed = {
        "CREATE_TOPIC": STREAM + ONE + text8("tp"),
        "UPDATE_TOPIC": PLACE + text8("tp"),
        "STORE_OFFSET": CONSUMER + PLACE + b"\x01" + ZERO + bytes(8) + b"\x01",
        "DELETE_OFFSET": CONSUMER + PLACE + b"\x01" + ZERO + b"\x01",
    }
    for name, code, body in _rows("V"):
        if not name.startswith("LOGIN"):
            yield name, code, changed.get(name, body)


def _w_rows() -> Iterator[Row]:
    """Yield W's commands, except SEND."""
    for name, code, body in _newest_rows():
        if code not in RETIRED_IN_W:
            yield name, code, body
    external = b"\x03" + identifier("g") + PLACE + b"\x01" + ZERO
    yield "GET_OFFSET of an external group", 120, external
    renamed = _option("name", text8("tp")[1:])
    expiry = _option("message_expiry", bytes(8), kind=12)
    yield "UPDATE_RESOURCE of a topic", 16, b"\x01" + PLACE + b"\x00" + renamed + expiry
    yield "UPDATE_RESOURCE by a reset", 16, b"\x01" + PLACE + b"\x01" + text8("max_topic_size")
    yield "UPDATE_RESOURCE of a stream", 16, b"\x02" + STREAM + b"\x00" + renamed
    status = _option("status", b"active")
    yield "UPDATE_RESOURCE of a user", 16, b"\x03" + USER + b"\x00" + status
    yield "BIND_SESSION", 15, W_VERSION + bytes(16 + 8 + 8) + SECRET
    yield "GET_CHANGES", 17, bytes(47) + struct.pack("<IBH", 100, 0, 0)
    token = bytes(44) + struct.pack("<QBBH", 1, 1, 1, 4) + ZERO
    query = b"\x03" + bytes(46) + struct.pack("<IBBH", 100, 1, 1, len(token))
    yield "GET_CHANGES of the state", 17, query + token
    yield "GET_ROUTE", 105, PLACE + ZERO
    poll = CONSUMER + PLACE + b"\x01" + ZERO + struct.pack("<BQIB", iggy.FIRST, 0, 10, 1)
    yield "POLL_DEFERRED", 106, poll + struct.pack("<QIIQ", 1000, 1, 1 << 20, 2_000_000)
    yield "CANCEL_DEFERRED", 108, b""
    limits = struct.pack("<QQIIIB", 1000, 2_000_000, 1, 10, 1 << 20, 1)
    place = struct.pack("<IBQIQQ", 0, iggy.BY_OFFSET, 0, 1 << 20, 1, 0)
    yield "FETCH", 109, CONSUMER + PLACE + limits + ONE + place


def _option(key: str, value: bytes, *, kind: int = iggy.STRING_KIND) -> bytes:
    """Return an entry of an options block."""
    entry = struct.pack("<BI", iggy.STRING_KIND, len(key)) + key.encode()
    return entry + struct.pack("<BI", kind, len(value)) + value


def _recorded(dialect: str, path: str) -> Iterator[CommandRow]:
    for row in recorded(path):
        if not row[0].startswith(UNFIT) and _is_hex(row[1]):
            yield CommandRow(f"{dialect} {row[0]}, recorded", bytes.fromhex(row[1]))


def _is_hex(text: str) -> bool:
    return bool(text) and set(text) <= set("0123456789abcdef")


def _commands(dialect: str) -> list[CommandRow]:
    commands = [
        CommandRow(f"{dialect} {n}", iggy_command(code, body)) for n, code, body in _rows(dialect)
    ]
    return commands + list(sends.of_dialect(dialect))


def _talks() -> Iterator[ConnectionKind]:
    oldest = list(_recorded("D0", "iggy/d0-server-670a8ba.tsv")) + _commands("D0")
    yield ConnectionKind(IGGY, [], [], oldest, dialect="D0")  # The first frame may be bad too.
    yield _talk("D0", [], oldest)
    unversioned = ("login_user", login(None))
    yield _talk("D0 with login", [unversioned], _commands("D0 with login"))
    yield _talk("D1a", [unversioned, OFFSETS_SHOW], _commands("D1a"))
    yield _talk("D1b", [unversioned], _commands("D1b"))
    classic = list(_recorded("D2", "iggy/d2-server-0.4.300.tsv"))
    for dialect, version in VERSIONS.items():
        more = classic if dialect == "D2" else []
        yield _talk(dialect, [("login_user", login(version))], _commands(dialect) + more)
    newest = list(_recorded("V", "iggy/v-server-0.9.0-edge.5.tsv"))
    (opening,) = (row.frame for row in newest if row.name.startswith("V LOGIN iggy/iggy"))
    for name, code, body in _newest_rows():
        frame = vsr_command(V_OPERATIONS.get(code, 2), body, code)
        newest.append(CommandRow(f"V {name}", frame))
    newest += sends.of_dialect("V")
    yield ConnectionKind(
        IGGY_V, [opening], ["login_user"], newest, V_SESSION, weight=2, dialect="V"
    )
    opening = vsr_command(1, W_VERSION + SECRET + text8("iggy") * 2 + bytes(4))
    rows = [
        CommandRow(f"W {name}", vsr_command(W_OPERATIONS.get(code, 2), body, code))
        for name, code, body in _w_rows()
    ]
    rows += sends.of_dialect("W")
    route = bytearray(vsr_command(2, PLACE + ZERO, 105))
    route[REQUEST_MARK_POS : REQUEST_MARK_POS + len(ROUTE_MARK)] = ROUTE_MARK
    question = OpeningQuestion(bytes(route), INCARNATION_POS, _incarnation_in)
    apis = ["login_user", "get_partition_route"]
    yield ConnectionKind(IGGY_V, [opening], apis, rows, V_SESSION, question, weight=2, dialect="W")


def _incarnation_in(answer: bytes) -> bytes | None:
    """Return the partition's lasting number in the answer, as `OpeningQuestion.number_in`."""
    mark_pos = answer.find(ROUTE_MARK)
    if mark_pos < 0:
        return None
    frame = answer[mark_pos - REPLY_MARK_POS :]
    (size,) = struct.unpack_from("<I", frame, SIZE_POS)
    return frame[HEADER_BYTES:size][:8] if len(frame) >= size else None


def _talk(
    dialect: str, opening: list[tuple[str, bytes]], rows: Sequence[CommandRow]
) -> ConnectionKind:
    if dialect in SHOWS:
        opening = [*opening, SHOWS[dialect]]
    apis, frames = [api for api, _ in opening], [frame for _, frame in opening]
    return ConnectionKind(IGGY, frames, apis, rows, dialect=dialect)


def protocol() -> Protocol:
    """Return the attack on the Iggy listener, in every dialect."""
    return Protocol("iggy", list(_talks()))
