"""The recorded conversation with a real server of dialect V, repeated here: equal answers except
varying fields, and the intended differences listed in `docs/protocols/iggy.md`.
"""

import struct

import pytest
import trio

from braidlog.protocols.iggy import vsr
from tests.protocols.frame_stream import FrameStream
from tests.protocols.iggy import description, description_v
from tests.protocols.iggy.description import plain
from tests.protocols.iggy.recorded import CLOSED, Recorded, conversation
from tests.waiting import HANG_S

V = "v-server-0.9.0-edge.5.tsv"
LOGIN_BODY = bytes.fromhex("002c000008727573742d73646b06302e31312e300469676779046967677900000000")
SILENT = b"silent"
DELETE_SEGMENTS = 138  # That server answers this as 68, which has a result section.

# Intended differences: docs/protocols/iggy.md has the reasons. Status, or None for a success.
DIFFERENT = {
    "CREATE_STREAM before login (dropped)": 40,
    "LOGIN twice on a connection": None,
    "operation 77 (unknown, dropped)": 3,
    "SEND no message": 4009,
    "SEND bad batch checksum": 4039,
    "SEND bad frame checksum": 4027,
    "SEND with session 0": 14001,
    "FLUSH": 1009,  # The stream is missing.
    "CREATE_TOPIC with durability = replicated (what apache-iggy 0.9.0 sends)": None,
    "DELETE_TOPIC st/td": None,  # The topic was created.
}
# A login of a later dialect, which that server did not know: its secret is missing here.
EVICTED = {"LOGIN, protocol 0.12.0": vsr.Reason.MALFORMED_LOGIN}


def stats(body: bytes) -> object:
    """Return the figures that do not depend on the machine."""
    parsed = description.STATS.parse(body)
    return parsed.streams, parsed.topics, parsed.partitions, parsed.messages, parsed.groups


def cluster(body: bytes) -> object:
    """Return the nodes' count and state: names and addresses are the server's."""
    name_bytes = int.from_bytes(body[:4], "little")
    return body[4 + name_bytes : 8 + name_bytes], body[-8:]


def options(body: bytes) -> object:
    """Return all fields but the texts."""
    described = description_v.DESCRIBED.parse(body)
    return [(option.key, option.kind, option.default) for option in described]


def topics(body: bytes) -> object:
    """Return the topics without the topic that only this broker could create."""
    listed = plain(description_v.TOPICS.parse(body))
    return description_v.steady([topic for topic in listed if topic["name"] != "td"])


def users_of_clients(body: bytes) -> object:
    """Return the users of the connections: the number of connections is the client's choice."""
    clients = plain(description_v.BODIES[22].parse(body))["clients"]
    return {
        (client["user_id"], client["transport"])
        for client in clients
        if client["user_id"] != NOBODY
    }


NOBODY = (1 << 32) - 1
# Compared separately: figures of a machine, the broker's own numbers and names.
LIKE = {
    "GET_STATS": stats,
    "GET_CLIENTS": users_of_clients,
    "GET_CLUSTER_METADATA": cluster,
    "DESCRIBE_OPTIONS topic": options,
    "GET_TOPICS st": topics,
}
# Frames without connection: closed as by the real server, except the differences in
# docs/protocols/iggy.md.
FRAMES_ANSWERED = {
    "frame: a classic PING": bytes(8),
    "frame: a classic D5 LOGIN": bytes.fromhex("000000000400000000000000"),
}


def answer_size(data: bytes) -> int | None:
    """Return the whole size of an answer, from its head of 256 bytes."""
    return struct.unpack_from("<I", data, 48)[0] if len(data) >= 256 else None


class VTalk(FrameStream):
    """A connection of dialect V, logged in by default."""

    def __init__(self, stream: trio.SocketStream) -> None:
        super().__init__(stream, answer_size)
        self.session = 0

    async def exchange(self, frame: bytes) -> bytes:
        """Return the whole answer to a frame."""
        await self.stream.send_all(frame)
        answer = await self.frame()
        assert answer is not None, "connection was closed"
        return answer

    async def login(self, client: bytes) -> None:
        """Log in as root."""
        head = bytearray(256)
        struct.pack_into("<I", head, 48, 256 + len(LOGIN_BODY))
        head[60], head[176] = 5, 1
        head[128:144] = client
        answer = await self.exchange(bytes(head) + LOGIN_BODY)
        assert (answer[60], answer[256:260]) == (8, bytes(4))
        (self.session,) = struct.unpack_from("<Q", answer, 264)

    def ours(self, frame: bytes) -> bytes:
        """Return a recorded frame with this connection's session, if the frame had a session."""
        if frame[184:192] == bytes(8):
            return frame
        return frame[:184] + struct.pack("<Q", self.session) + frame[192:]


class Clients:
    """A connection for each client of the conversation."""

    def __init__(self, open_client) -> None:
        self._open = open_client
        self._talks: dict[bytes, VTalk] = {}

    async def of(self, frame: bytes, *, is_login: bool) -> VTalk:
        """Return the connection of a frame's client; open and log in a missing connection."""
        client = frame[128:144]
        if client not in self._talks:
            self._talks[client] = VTalk(await self._open("iggy"))
            if frame[184:192] != bytes(8) and not is_login:
                await self._talks[client].login(client)
        return self._talks[client]

    async def leave(self, client_start: str) -> None:
        """Close the connection of the client whose id has this beginning."""
        for client, talk in self._talks.items():
            if client.hex().startswith(client_start):
                await talk.stream.aclose()


def code_of(frame: bytes) -> int:
    """Return the command's code: its operation, or the code of a non-replicated command."""
    return struct.unpack_from("<I", frame, 196)[0] if frame[176] == 2 else 1000 + frame[176]


def has_result(operation: int) -> bool:
    """Return True if the answers of an operation begin with a result section
    (`is_result_framed`).
    """
    if operation == DELETE_SEGMENTS:
        return False
    return operation in (1, 161, 162) or 64 <= operation < 70 or 128 <= operation < 150


def fixed_fields(frame: bytes, answer: bytes) -> tuple[int, int, object]:
    """Return command byte, error (status or result section) and body of an answer, without varying
    fields.
    """
    if answer[60] == 13:
        return 13, answer[255], answer[148:152]  # The oldest version; this broker has newer ones.
    (status,) = struct.unpack_from("<I", answer, 216)
    body = answer[256:]
    if has_result(answer[208]):
        if status == 0 and body[:4] == b"\x01\x00\x00\x00":
            return 8, struct.unpack_from("<I", body, 8)[0], b""
        body = body[4:]
    return 8, status, description_v.normal(code_of(frame), body)


def compare(row: Recorded, answer: bytes) -> None:
    frame = row.request
    command, status, body = fixed_fields(frame, answer)
    if row.name in DIFFERENT:
        assert (command, status) == (8, DIFFERENT[row.name] or 0), row.name
        return
    assert row.answer != SILENT, row.name
    if row.name in EVICTED:
        assert (command, status) == (13, EVICTED[row.name]), row.name
        return
    wanted = fixed_fields(frame, row.answer)
    assert (command, status) == wanted[:2], row.name
    if row.name in LIKE:
        alike = LIKE[row.name]
        assert alike(answer[256:]) == alike(row.answer[256:]), row.name
    else:
        assert body == wanted[2], row.name
    # Echoes: checksum, client, request number.
    if command == 8:
        assert answer[160:176] == frame[128:144], row.name
        assert answer[200:208] == frame[168:176], row.name
        assert answer[128:144] == frame[144:160], row.name


async def test_answers_equal_the_real_servers(open_client):
    clients = Clients(open_client)
    raw_token = b""
    for row in conversation(V):
        if row.name.startswith("frame:"):
            break
        if row.name == "SYNC_GROUP after a broken connection":
            await clients.leave("c6da88")
        talk = await clients.of(row.request, is_login=row.name.startswith("LOGIN"))
        request = talk.ours(row.request)
        if row.name == "LOGIN with a token":
            request = with_token(request, raw_token)
        for before in between(row.name, talk):
            await talk.exchange(before)
        answer = await talk.exchange(request)
        if row.name == "SYNC_GROUP after a broken connection":
            with trio.fail_after(HANG_S):
                while len(answer) < 256 + 20:
                    answer = await talk.exchange(request)
        if row.name == 'CREATE_PAT "tok"':
            raw_token = answer[261:]
        compare(row, answer)
        if row.request[176] == 1 and answer[60] == 8:
            (talk.session,) = struct.unpack_from("<Q", answer, 264)


@pytest.mark.parametrize(
    "row",
    [row for row in conversation(V) if row.name.startswith("frame:")],
    ids=lambda row: row.name,
)
async def test_a_frame_without_connection(connect, row):
    talk = await connect()
    answer = await talk.exchange(row.request)
    assert answer == FRAMES_ANSWERED.get(row.name)
    assert row.answer in (CLOSED, SILENT)


def between(name: str, talk: VTalk) -> list[bytes]:
    """Return the frames between the recorded rows, before the row of that name."""
    rows = {row.name: row.request for row in conversation(V)}
    if name == "SEND, the same request number again":
        return [talk.ours(rows[name])]
    if name == "GET_OFFSET after auto commit":
        poll = rows["POLL next, nothing stored"]  # By consumer 1: two messages, now committed.
        return [talk.ours(poll[:-1] + b"\x01")]
    return []


def with_token(frame: bytes, token: bytes) -> bytes:
    """Return a login with another token."""
    start = 256 + 4 + 1 + 8 + 1 + 6
    body = frame[256:start] + bytes([len(token)]) + token + bytes(4)
    head = bytearray(frame[:256])
    struct.pack_into("<I", head, 48, 256 + len(body))
    return bytes(head) + body
