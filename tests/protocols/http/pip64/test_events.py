"""Messages as server-sent events and as lines, until the client disconnects or the source ends."""

import json

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.protocols.http.pip64.streams import EVENTS, HEARTBEAT_S, LINES
from tests.protocols.http.asgi import call
from tests.protocols.http.pip64.conftest import BASE
from tests.waiting import until

PARTITION = f"{BASE}/partitions/0"
READ = f"{PARTITION}/messages"


@pytest.fixture
def produce(ask):
    async def produce(*values):
        body = {"messages": [{"value": value} for value in values]}
        answer = await ask("POST", PARTITION, body)
        assert answer.status == 200, answer.body
        return [result["messageId"] for result in answer.json["messageIds"]]

    return produce


class Followed:
    """An answer that continues until the client disconnects."""

    def __init__(self):
        self.leave = trio.Event()
        self.answer = None

    async def run(self, app, path, headers):
        self.answer = await call(app, "GET", path, headers=headers, leave=self.leave)

    async def end(self):
        """Disconnect; return the blocks received so far."""
        await wait_all_tasks_blocked(0.02)
        self.leave.set()
        return await self.ended()

    async def ended(self):
        await until(lambda: self.answer)
        assert self.answer.status == 200, self.answer.body
        assert self.answer.headers["content-type"].startswith(EVENTS)
        return self.answer.body.decode().split("\n\n")[:-1]


@pytest.fixture
def follow(app, nursery):
    """Return `follow`: `follow(path)` starts to read a stream of events."""

    def follow(path, **headers):
        followed = Followed()
        wanted = {"Accept": EVENTS, **{k.replace("_", "-"): v for k, v in headers.items()}}
        nursery.start_soon(followed.run, app, path, wanted)
        return followed

    return follow


def events_of(blocks):
    """Return (id, value) of each event with data."""
    events = []
    for block in blocks:
        fields = dict(line.split(": ", 1) for line in block.splitlines() if line[0] != ":")
        if "data" in fields and "event" not in fields:
            data = json.loads(fields["data"])
            assert fields["id"] == data["messageId"].translate(str.maketrans("+/", "-_"))
            events.append((fields["id"], data["value"]))
    return events


async def test_a_stream_of_a_partition_continues_with_new_messages(orders, produce, follow):
    ids = await produce("a", "b")
    followed = follow(f"{READ}?position=1")
    await wait_all_tasks_blocked(0.02)
    ids += await produce("c")
    blocks = await followed.end()
    assert blocks[0] == ": ready"
    assert events_of(blocks) == [(ids[1], "b"), (ids[2], "c")]


async def test_a_reconnecting_client_continues_after_its_last_event(orders, produce, follow):
    ids = await produce("a", "b", "c")
    followed = follow(f"{READ}?position=latest", Last_Event_ID=ids[0])
    assert events_of(await followed.end()) == [(ids[1], "b"), (ids[2], "c")]


async def test_a_head_request_of_a_stream_ends_at_once(app, orders, produce):
    """Otherwise the connection would be blocked: an endless answer without body has no end mark."""
    await produce("a")
    with trio.fail_after(5):
        answer = await call(app, "HEAD", READ, headers={"Accept": EVENTS}, leave=trio.Event())
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"].startswith(EVENTS)


async def test_a_stream_without_messages_sends_keepalives(orders, follow, autojump_clock):
    followed = follow(READ)
    await trio.sleep(2.5 * HEARTBEAT_S)
    blocks = await followed.end()
    assert blocks == [": ready", *[": nothing yet"] * 2]


async def test_a_stream_ends_when_the_broker_stops(broker, orders, produce, follow):
    ids = await produce("a")
    followed = follow(READ)
    await wait_all_tasks_blocked(0.02)
    broker.stop()
    assert events_of(await followed.ended()) == [(ids[0], "a")]


async def test_a_stream_of_a_deleted_topic_ends_with_the_reason(broker, orders, produce, follow):
    followed = follow(READ)
    await wait_all_tasks_blocked(0.02)
    await broker.topics.delete(orders.name)
    last = (await followed.ended())[-1]
    assert last == f'event: error\ndata: "{orders.name} was deleted"'


@pytest.fixture
async def consumer(orders, ask):
    """Return the path of a consumer that begins with the first message."""
    created = await ask("POST", f"{BASE}/subscription/s", {"initial_position": "Earliest"})
    return f"{BASE}/subscription/s/consumer/{created.json['id']}"


async def test_a_consumers_stream_delivers_each_message_once(produce, consumer, follow, ask):
    ids = await produce("a", "b")
    followed = follow(f"{consumer}/messages")
    await wait_all_tasks_blocked(0.02)
    ids += await produce("c")
    assert events_of(await followed.end()) == list(zip(ids, "abc", strict=True))
    assert (await ask("GET", f"{consumer}/messages?timeout=0")).json["messages"] == []
    cursor = (await ask("GET", f"{BASE}/subscription/s/cursor")).json["cursor"]
    assert (cursor["unacked"], cursor["backlog"]) == (3, 3)


async def test_a_consumer_that_is_deleted_ends_its_stream_with_the_reason(consumer, follow, ask):
    followed = follow(f"{consumer}/messages")
    await wait_all_tasks_blocked(0.02)
    assert (await ask("DELETE", consumer)).status == 204
    last = (await followed.ended())[-1]
    assert last.startswith("event: error\ndata: ") and "has ended" in last


async def test_a_consumers_stream_without_messages_stays_open(consumer, follow, autojump_clock):
    followed = follow(f"{consumer}/messages")
    await trio.sleep(1.5 * HEARTBEAT_S)
    assert await followed.end() == [": ready", ": nothing yet"]


async def test_messages_as_lines(produce, consumer, ask):
    ids = await produce("a", "b")
    for path in (f"{READ}?max_messages=2", f"{consumer}/messages?timeout=1000"):
        answer = await ask("GET", path, headers={"Accept": LINES})
        assert answer.headers["content-type"].startswith(LINES)
        messages = [json.loads(line) for line in answer.body.splitlines()]
        assert [(message["messageId"], message["value"]) for message in messages] == list(
            zip(ids, "ab", strict=True)
        )
    answer = await ask("GET", f"{READ}?max_messages=1", headers={"Accept": LINES})
    assert answer.headers["x-next-offset"] == "1"
