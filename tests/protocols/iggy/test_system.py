"""Login, and a client's information about the broker and its clients."""

import os

import pytest

from tests.protocols.iggy import description
from tests.protocols.iggy.description import named

PING, STATS, ME, CLIENT, CLIENTS, LOGOUT = 1, 10, 20, 21, 22, 39


@pytest.mark.parametrize(("username", "password"), [("iggy", "wrong"), ("root", "iggy"), ("", "")])
async def test_wrong_name_or_password_is_refused_and_may_be_tried_again(
    connect, username, password
):
    talk = await connect()
    values = {"username": username, "password": password, "version": "0.6.202", "context": ""}
    assert await talk.status(38, **values) == 42
    assert await talk.status(ME) == 40
    assert await talk.login() == 0
    assert await talk.status(ME) == 0


async def test_configured_password(connect, tmp_path):
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    talk = await connect(password_file=str(file))
    assert await talk.login() == 42
    assert await talk.login(password="s3cret") == 0
    file.unlink()
    assert await talk.login(password="s3cret") == 42


async def test_only_ping_and_login_are_served_after_logout(talk):
    assert await talk.status(LOGOUT) == 0
    assert await talk.status(PING) == 0
    assert await talk.status(ME) == 40
    assert await talk.login() == 0
    assert await talk.status(ME) == 0


async def test_clients_are_shown_while_they_are_connected(connect, talk):
    other = await connect()
    assert await other.status(PING) == 0
    clients = (await talk.ask(CLIENTS))["clients"]
    assert [client["user_id"] for client in clients] == [1, 0]
    me = (await talk.ask(ME))["client"]
    host, port = talk.stream.socket.getsockname()
    assert me["address"] == f"{host}:{port}"
    assert me == clients[0]
    assert (await talk.ask(CLIENT, client_id=clients[1]["client_id"]))["client"] == clients[1]
    await other.stream.aclose()
    await talk.ask_until(lambda answer: len(answer["clients"]) == 1, CLIENTS)
    assert await talk.ask(CLIENT, client_id=clients[1]["client_id"]) == {"status": 0}


async def test_memberships_are_shown_by_their_numbers(talk):
    await talk.create_topic()
    topic = {"stream": named("st"), "topic": named("tp")}
    await talk.ask(602, **topic, group_id=5, name="grp")
    await talk.status(604, **topic, group=named("grp"))
    answer = await talk.ask(ME)
    assert answer["client"]["groups_count"] == 1
    assert answer["memberships"] == [{"stream_id": 1, "topic_id": 1, "group_id": 5}]


async def test_stats_are_those_of_this_process_and_its_topics(broker, talk):
    await talk.create_topic(partitions=2)
    await talk.send(b"0", b"1")
    stats = await talk.ask(STATS)
    assert stats["process_id"] == os.getpid()
    counts = ("streams", "topics", "partitions", "messages", "clients", "groups")
    assert [stats[name] for name in counts] == [1, 1, 2, 2, 1, 0]
    assert stats["messages_size"] > 2 * 46
    assert stats["segments"] >= 1
    assert 0 < stats["memory_usage"] < stats["total_memory"]
    assert abs(stats["start_time"] + stats["run_time"] - broker.now_us()) < 60_000_000
    assert stats["server_version"]


@pytest.mark.parametrize(
    ("version", "absent_is_error", "errors_have_text"),
    [("0.6.202", False, False), ("0.6.12", False, True), ("0.5.0", True, True)],
)
async def test_errors_and_absence_have_the_form_of_the_clients_dialect(
    connect, version, absent_is_error, errors_have_text
):
    talk = await connect()
    await talk.login(version)
    answer = await talk.exchange(description.request(200, stream=named("nope")))
    if absent_is_error:
        assert (answer[:4], answer[12:]) == (b"\xf2\x03\0\0", b"stream name not found")
    else:
        assert answer == bytes(8)
    answer = await talk.exchange(description.request(203, stream=named("nope")))
    assert (answer[:4], len(answer) > 12) == (b"\xf2\x03\0\0", errors_have_text)


async def test_broker_errors_have_numbers_and_the_connection_continues(broker, talk):
    await talk.create_topic()
    assert (
        await talk.status(
            121,
            consumer={"kind": 1, "id": named(1)},
            stream=named("st"),
            topic=named("tp"),
            partition=7,
            offset=0,
        )
        == 3007
    )
    refused = broker.metrics.number("braidlog_errors", "iggy", "3007")
    assert refused.value == 1
    assert await talk.status(PING) == 0
