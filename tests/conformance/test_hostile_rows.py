"""The attack covers every served command in each version, and each method of each path."""

import json
import random
import struct
from collections.abc import Iterator
from urllib.parse import parse_qs

import msgspec
import pytest
import trio
from starlette.routing import Match

from braidlog.protocols.http.app import make_routes
from braidlog.protocols.http.options import RestOptions
from braidlog.protocols.http.websocket.consumer import COMMANDS as WEBSOCKET_COMMANDS
from braidlog.protocols.http.websocket.frames import Command, SentMessage
from braidlog.protocols.http.websocket.parameters import (
    ConsumerParameters,
    ProducerParameters,
    ReaderParameters,
)
from braidlog.protocols.iggy.all_dialects import BY_NAME
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.http.routes import ROWS
from braidlog.protocols.iggy.layouts_v import V
from braidlog.protocols.iggy.layouts_w import W
from braidlog.protocols.iggy.machine import LOGINS, IggyMachine, RefusedFrame
from braidlog.protocols.iggy.messages import CommandCode
from braidlog.protocols.iggy.options import WithoutLogin
from braidlog.protocols.iggy.replies import PartitionRoute
from braidlog.protocols.kafka.codec import read, write
from braidlog.protocols.kafka.fields import FieldReader, Writer
from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.tables import APIS, FLEXIBLE
from braidlog.protocols.kafka.wire.metadata import MetadataResponse, MetadataResponseTopic
from braidlog.protocols.pulsar.session import COMMANDS as PULSAR_COMMANDS
from braidlog.protocols.zookeeper.machine import WORDS
from braidlog.protocols.zookeeper.messages import Op
from conformance.clients.raw import pulsar
from conformance.hostile.attack import AttackResult, speeches
from conformance.hostile.commands import protocols
from conformance.hostile.rows import TOPIC, CommandRow, ConnectionKind, Protocol
from conformance.hostile.rows_iggy import V_SESSION


def frames(protocol: Protocol) -> list[bytes]:
    """Return the valid frames of every row, openings included."""
    return [
        frame
        for talk in protocol.talks
        for frame in (*talk.opening, *(row.frame for row in talk.commands))
    ]


def test_every_version_of_every_kafka_request_is_attacked():
    versions = {struct.unpack_from(">hh", frame, 4) for frame in frames(protocols()["kafka"])}
    served = {(key, version) for key, api in APIS.items() for version in range(api.version_max + 1)}
    assert not served - versions


def kafka_requests() -> Iterator[tuple[int, Struct]]:
    """Yield (version, request) of every frame of Kafka."""
    for frame in frames(protocols()["kafka"]):
        key, version = struct.unpack_from(">hh", frame, 4)
        if key not in APIS or not APIS[key].version_min <= version <= APIS[key].version_max:
            continue
        (size,) = struct.unpack_from(">h", frame, 12)
        body = memoryview(frame)[14 + max(size, 0) + ((key, version) in FLEXIBLE) :]
        yield version, read(APIS[key].request, FieldReader(body), version)


def lists_of(request: Struct, version: int, path: str) -> Iterator[tuple[str, bool]]:
    """Yield (path, True if not empty) of each list that the version has."""
    for field in request.FIELDS:
        value = getattr(request, field.name)
        if not field.since <= version <= field.until:
            continue
        if isinstance(value, list | tuple):
            yield f"{path}.{field.name}", bool(value)
        for part in value if isinstance(value, list | tuple) else (value,):
            if isinstance(part, Struct):
                yield from lists_of(part, version, f"{path}.{field.name}")


def test_every_list_of_every_kafka_request_is_sent_with_items():
    """An empty list ends a request before the code that reads its items."""
    sent: dict[tuple[int, int, str], bool] = {}
    for version, request in kafka_requests():
        for path, has_items in lists_of(request, version, type(request).__name__):
            place = request.KEY, version, path
            sent[place] = sent.get(place, False) or has_items
    empty = sorted(place for place, has_items in sent.items() if not has_items)
    assert not empty, "\n".join(map(str, empty))


def test_frames_of_kafka_name_the_id_of_their_topic():
    """Newer versions have ids in place of names: an unknown id is refused before the rest."""
    (talk,) = [talk for talk in protocols()["kafka"].talks if talk.session is not None]
    session = talk.session
    topic_id = bytes(range(16))
    topic = MetadataResponseTopic(name=TOPIC.encode(), topic_id=topic_id)
    out = Writer()
    write(out, MetadataResponse(topics=[topic]), 12)
    answer = bytes(4 + 4 + 1) + b"".join(map(bytes, out.parts()))
    place = session.place_in(answer)
    assert answer[place : place + session.size] == topic_id
    assert session.place_in(answer[:place]) is None
    keys = {struct.unpack_from(">h", row.frame, 4)[0] for row in talk.commands}
    assert keys >= {0, 1, 3, 8, 9, 68, 78, 79}
    for row in talk.commands:
        assert topic_id in session.put_in(row.frame, topic_id)


def test_every_pulsar_command_is_attacked():
    commands = set()
    for frame in frames(protocols()["pulsar"]):
        (size,) = struct.unpack_from(">I", frame, 4)
        (kind,) = (value for number, value in pulsar.parse(frame[8 : 8 + size]) if number == 1)
        commands.add(kind)
    assert not {int(kind) for kind in PULSAR_COMMANDS} - commands


class NotedTexts(dict):
    """Query parameters that are all absent, and notes which are asked for."""

    def __init__(self):
        self.asked = set()

    def get(self, name, default=None):
        self.asked.add(name)
        return default

    def __contains__(self, name):
        self.asked.add(name)
        return False


def parameters_of(cls):
    texts = NotedTexts()
    cls.read(texts)
    return texts.asked


def test_every_part_of_pulsars_websocket_api_is_attacked():
    protocol = protocols()["pulsar-websocket"]
    rows = [row for talk in protocol.talks for row in talk.commands]
    texts = [json.loads(row.inner) for row in rows if row.inner]
    assert {text.get("type") for text in texts} >= set(WEBSOCKET_COMMANDS)
    fields = {field.encode_name for field in msgspec.structs.fields(SentMessage)}
    fields |= {field.encode_name for field in msgspec.structs.fields(Command)}
    assert {name for text in texts for name in text} >= fields
    targets = [frame.split(b" ")[1].decode() for frame in frames(protocol) if frame[:3] == b"GET"]
    sent = {name for target in targets for name in parse_qs(target.partition("?")[2])}
    for cls in (ProducerParameters, ConsumerParameters, ReaderParameters):
        assert sent >= parameters_of(cls)
    for row in rows:
        assert row.wrap is None or row.wrap(row.inner) == row.frame


def test_every_zookeeper_operation_is_attacked():
    sent = frames(protocols()["zookeeper"])
    ops = {struct.unpack_from(">i", frame, 8)[0] for frame in sent if len(frame) >= 12}
    assert not {int(op) for op in Op} - ops
    assert {frame[:4] for frame in sent} >= WORDS


DIALECTS = {**BY_NAME, "V": V, "W": W}


def understood(talk: ConnectionKind, row: CommandRow) -> tuple[str, int] | None:
    """Return the dialect and code of a row on a connection with its talk's opening; None if
    refused.
    """
    machine = IggyMachine(
        without_login=WithoutLogin.NOBODY
        if "login_user" in talk.opening_apis
        else WithoutLogin.EVERYBODY
    )
    for frame in (*talk.opening, row.frame):
        assert machine.frame_size(memoryview(frame)) == len(frame), row.name
        event = machine.decode(memoryview(frame))
        if isinstance(event, RefusedFrame):
            return None
        machine.logged_in = machine.logged_in or event.code == CommandCode.LOGIN_USER
    return machine.dialect.name, event.code


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_iggy_command_is_attacked_in_every_dialect(dialect):
    pairs = set()
    for talk in protocols()["iggy"].talks:
        if talk.dialect == dialect and talk.opening:
            rows = [row for row in talk.commands if "recorded" not in row.name]
            pairs |= {understood(talk, row) for row in rows}
    served = {(dialect, code) for code in DIALECTS[dialect].requests if code not in LOGINS}
    assert not served - pairs
    assert {name for name, code in pairs - {None} if code not in LOGINS} == {dialect}


def test_newest_dialects_are_attacked_over_websocket():
    """Their sessions lie behind a frame's head and a mask that changes nothing."""
    talks = [talk for talk in protocols()["iggy-websocket"].talks if talk.session is not None]
    assert [talk.dialect for talk in talks] == ["V", "W"]
    for talk in talks:
        head = talk.session.frame_pos - V_SESSION.frame_pos
        rows = [row for row in talk.commands if row.inner]
        assert rows
        for row in rows:
            assert row.wrap(row.inner) == row.frame
            assert row.frame[head:] == row.inner
        answer = b"HTTP/1.1 101 \r\n\r\n\x82\x7e\x01\x22" + bytes(264) + b"12345678"
        assert talk.session.place_in(answer[:-1]) is None
        place = talk.session.place_in(answer)
        assert answer[place:] == b"12345678"


def test_frames_are_counted_by_dialect():
    sent = AttackResult()
    assert list(speeches(protocols()["iggy"], 2000, random.Random(1), sent))
    assert set(sent.dialects) == set(DIALECTS)
    assert sent.dialects.total() == sent.total == 2000
    assert min(sent.dialects.values()) > 60


def test_every_method_of_every_path_of_iggys_http_api_is_attacked():
    lines = {frame.partition(b"\r\n")[0].decode() for frame in frames(protocols()["iggy-http"])}
    requests = {tuple(line.split(" ")[:2]) for line in lines}
    matched = {
        row
        for method, target in requests
        for row in ROWS
        if row.method == method
        and row.match(target.partition("?")[0].strip("/").split("/")) is not None
    }
    missing = [f"{row.method} {row.path}" for row in ROWS if row not in matched]
    assert not missing, "\n".join(missing)


def test_headers_that_the_http_listener_reads_are_attacked():
    read = {"accept", "authorization", "content-encoding", "expect", "last-event-id", "origin"}
    heads = [frame.partition(b"\r\n\r\n")[0] for frame in frames(protocols()["http"])]
    lines = [line for head in heads for line in head.decode().split("\r\n")[1:]]
    names = {line.partition(":")[0].lower() for line in lines}
    assert not (read | {"sec-fetch-site"}) - names
    assert any(line.startswith("Accept: application/openmetrics-text") for line in lines)


async def test_every_method_of_every_path_of_http_is_attacked(broker):
    routes = make_routes(broker, RestOptions(), trio.Event())
    lines = {frame.partition(b"\r\n")[0].decode() for frame in frames(protocols()["http"])}
    requests = {tuple(line.split(" ")[:2]) for line in lines}
    missing = {(method, route.path) for route in routes for method in route.methods or ()}
    for method, target in requests:
        scope = {"type": "http", "method": method, "path": target.partition("?")[0]}
        for route in routes:
            if route.matches({**scope, "root_path": "", "headers": []})[0] == Match.FULL:
                missing.discard((method, route.path))
                break
    left = sorted({(method, path) for method, path in missing if method != "HEAD"})
    assert not left, "\n".join(map(str, left))


def test_frames_of_w_name_the_partition_of_their_topic():
    """Otherwise the broker refuses SEND and POLL before it looks at the rest."""
    (talk,) = [talk for talk in protocols()["iggy"].talks if talk.dialect == "W"]
    question = talk.question
    assert question is not None
    machine = IggyMachine()
    for opening in talk.opening:
        assert machine.frame_size(memoryview(opening)) == len(opening)
        machine.decode(memoryview(opening))
    machine.logged_in = True
    event = machine.decode(memoryview(question.frame))
    assert event.code == CommandCode.GET_PARTITION_ROUTE
    route = machine.encode(event, [PartitionRoute(77, 5, 0, 2, 0)])
    for size in range(len(route)):
        assert question.number_in(bytes(300) + route[:size]) is None
    assert question.number_in(bytes(300) + route) == struct.pack("<Q", 77)
    assert (
        question.number_in(bytes(300) + machine.error(event, ErrorCode.TOPIC_ID_NOT_FOUND)) == b""
    )
    assert question.frame_pos == 200
