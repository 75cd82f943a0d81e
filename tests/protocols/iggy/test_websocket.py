"""The WebSocket listener: the sessions of the TCP listener, with the same clients and groups."""

import struct

import pytest

from braidlog.broker.server import adapters
from braidlog.protocols.iggy.websocket_adapter import ADAPTER_WEBSOCKET, IggyWebSocketOptions
from tests.protocols.iggy.description import named
from tests.protocols.iggy.talk import Talk
from tests.protocols.iggy.vtalk import CREATE_STREAM, STREAM, VClient
from tests.protocols.ws_client import WsClient

NAME = "iggy-websocket"


@pytest.fixture
async def open_websocket(broker, open_client):
    async def open_(**options):
        client = WsClient(await open_client(NAME, **options))
        await client.open()
        return client

    return open_


def test_the_listener_is_off_by_default():
    assert adapters.load(NAME) is ADAPTER_WEBSOCKET
    assert NAME not in adapters.listening_by_default()


async def test_a_classic_client_is_served(open_websocket):
    talk = Talk(await open_websocket())
    assert await talk.login() == 0
    assert await talk.status(202, stream_id=0, name="st") == 0
    assert [stream["name"] for stream in (await talk.ask(201))["streams"]] == ["st"]


async def test_a_client_of_the_newest_dialect_is_served(open_websocket):
    client = VClient(await open_websocket())
    await client.login()
    assert await client.status(CREATE_STREAM, STREAM[1:]) == 0


async def test_clients_of_both_listeners_see_each_other(open_websocket, connect):
    over_tcp, over_websocket = await connect(), Talk(await open_websocket())
    for talk in (over_tcp, over_websocket):
        await talk.login()
    clients = (await over_tcp.ask(22))["clients"]
    assert sorted(client["transport"] for client in clients) == [1, 4]


async def test_members_of_a_group_come_from_both_listeners(open_websocket, connect):
    members = [await connect(), Talk(await open_websocket())]
    place = {"stream": named("st"), "topic": named("tp")}
    for talk in members:
        await talk.login()
    await members[0].create_topic(partitions=2)
    await members[0].status(602, **place, group_id=0, name="grp")
    for talk in members:
        assert await talk.status(604, **place, group=named("grp")) == 0
    group = await members[0].ask(600, **place, group=named("grp"))
    assert [len(member["partitions"]) for member in group["members"]] == [1, 1]


async def test_the_metadata_of_the_cluster_have_the_ports_of_open_listeners(
    broker, open_websocket, connect
):
    clients = [await connect(), Talk(await open_websocket())]
    ports = [broker.listeners[name].bound[1] for name in ("iggy", NAME)]
    for talk in clients:
        await talk.login(version="0.10.0")
        answer = await talk.exchange(struct.pack("<II", 4, 12))
        assert struct.unpack("<4H", answer[-10:-2]) == (ports[0], 0, 0, ports[1])


async def test_the_login_is_checked(open_websocket):
    talk = Talk(await open_websocket())
    assert await talk.status(201) == 40


def test_the_line_for_a_client_has_the_address_and_no_password():
    line = ADAPTER_WEBSOCKET.describe("127.0.0.1", 8092, IggyWebSocketOptions())
    assert "iggy+ws://iggy:PASSWORD@127.0.0.1:8092" in line
