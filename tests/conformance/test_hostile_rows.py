"""Whatever is served is attacked: each command in each version, each method of each path."""

import struct

import trio
from starlette.routing import Match

from conformance.hostile.commands import protocols
from conformance.hostile.mutation import IGGY
from conformance.hostile.rows import Protocol
from conformance.raw import pulsar
from protocols.iggy.messages import Code
from protocols.kafka.tables import APIS
from protocols.pulsar.session import COMMANDS as PULSAR_COMMANDS
from protocols.rest.app import make_routes
from protocols.rest.options import RestOptions


def frames(protocol: Protocol) -> list[bytes]:
    """Good frames of every row, openings too."""
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


def test_every_iggy_code_is_attacked():
    found: set[int] = set()
    for talk in protocols()["iggy"].talks:
        if talk.layout is IGGY:
            rows = [row.frame for row in talk.commands]
            found |= {struct.unpack_from("<I", frame, 4)[0] for frame in (*talk.opening, *rows)}
    assert not {int(code) for code in Code} - found


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
