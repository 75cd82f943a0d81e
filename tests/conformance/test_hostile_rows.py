"""The attack covers every served command in each version, and each method of each path."""

import random
import struct

import pytest
import trio
from starlette.routing import Match

from braidlog.protocols.http.app import make_routes
from braidlog.protocols.http.options import RestOptions
from braidlog.protocols.iggy.all_dialects import BY_NAME
from braidlog.protocols.iggy.layouts_v import V
from braidlog.protocols.iggy.machine import LOGINS, IggyMachine, RefusedFrame
from braidlog.protocols.iggy.messages import CommandCode
from braidlog.protocols.iggy.options import WithoutLogin
from braidlog.protocols.kafka.tables import APIS
from braidlog.protocols.pulsar.session import COMMANDS as PULSAR_COMMANDS
from conformance.clients.raw import pulsar
from conformance.hostile.attack import Sent, speeches
from conformance.hostile.commands import protocols
from conformance.hostile.rows import Command, Protocol, Talk


def frames(protocol: Protocol) -> list[bytes]:
    """Return the valid frames of every row, openings included."""
    return [
        frame
        for talk in protocol.talks
        for frame in (*talk.opening, *(row.frame for row in talk.commands))
    ]


def test_every_version_of_every_kafka_request_is_attacked():
    found = {struct.unpack_from(">hh", frame, 4) for frame in frames(protocols()["kafka"])}
    served = {(key, version) for key, api in APIS.items() for version in range(api.version_max + 1)}
    assert not served - found


def test_every_pulsar_command_is_attacked():
    found = set()
    for frame in frames(protocols()["pulsar"]):
        (size,) = struct.unpack_from(">I", frame, 4)
        (kind,) = (value for number, value in pulsar.parse(frame[8 : 8 + size]) if number == 1)
        found.add(kind)
    assert not {int(kind) for kind in PULSAR_COMMANDS} - found


DIALECTS = {**BY_NAME, "V": V}


def understood(talk: Talk, row: Command) -> tuple[str, int] | None:
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
    found = set()
    for talk in protocols()["iggy"].talks:
        if talk.dialect == dialect and talk.opening:
            rows = [row for row in talk.commands if "recorded" not in row.name]
            found |= {understood(talk, row) for row in rows}
    served = {(dialect, code) for code in DIALECTS[dialect].requests if code not in LOGINS}
    assert not served - found
    assert {name for name, code in found - {None} if code not in LOGINS} == {dialect}


def test_frames_are_counted_by_dialect():
    sent = Sent()
    assert list(speeches(protocols()["iggy"], 2000, random.Random(1), sent))
    assert set(sent.dialects) == set(DIALECTS)
    assert sent.dialects.total() == sent.total == 2000
    assert min(sent.dialects.values()) > 60


async def test_every_method_of_every_path_of_http_is_attacked(broker):
    routes = make_routes(broker, RestOptions(), trio.Event())
    lines = {frame.partition(b"\r\n")[0].decode() for frame in frames(protocols()["http"])}
    asked = {tuple(line.split(" ")[:2]) for line in lines}
    missing = {(method, route.path) for route in routes for method in route.methods or ()}
    for method, target in asked:
        scope = {"type": "http", "method": method, "path": target.partition("?")[0]}
        for route in routes:
            if route.matches({**scope, "root_path": "", "headers": []})[0] == Match.FULL:
                missing.discard((method, route.path))
                break
    left = sorted({(method, path) for method, path in missing if method != "HEAD"})
    assert not left, "\n".join(map(str, left))
