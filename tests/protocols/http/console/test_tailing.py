"""The live tail."""

import json

import pytest
import trio

from braidlog.protocols.http.console import tailing
from tests.protocols.http.asgi import call, scope_of
from tests.waiting import until

TOPIC = "public/default/orders"
EVENTS = f"/ui/topics/{TOPIC}/tail/events"


@pytest.fixture
async def orders(app):
    await call(app, "PUT", f"/api/v1/topics/{TOPIC}", {"partitions": 2})
    await produce(app, 0, "old")


async def produce(app, partition, *values):
    body = {"messages": [{"value": value} for value in values]}
    assert (await call(app, "POST", f"/topics/{TOPIC}/partitions/{partition}", body)).status == 200


class OpenEventStream:
    """An open stream of events; `leave` closes the browser's side."""

    def __init__(self, app, nursery, path):
        self.body = b""
        self.leave = trio.Event()
        self.has_ended = False
        nursery.start_soon(self._run, app, path)

    async def _run(self, app, path):
        async def receive():
            await self.leave.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            self.body += message.get("body", b"")

        await app(scope_of("GET", path), receive, send)
        self.has_ended = True

    def events(self, name):
        events = []
        for event in self.body.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in event.split("\n") if ": " in line[1:])
            if fields and fields.get("event", "message") == name:
                events.append(json.loads(fields["data"]))
        return events


@pytest.mark.slow
async def test_a_tail_shows_new_messages_and_counts_skipped_ones(orders, app, nursery):
    stream = OpenEventStream(app, nursery, f"{EVENTS}?contains=n")
    await until(lambda: b"nothing yet" in stream.body)
    await produce(app, 1, "<b>new\u202e", "other")
    many = [f"n{number}" for number in range(tailing.TAIL_MESSAGES_MAX + 7)]
    await produce(app, 0, *many)
    await until(lambda: stream.events("skipped"))
    values = [event["value"] for event in stream.events("message")]
    assert sorted(values) == sorted(["<b>new\\u202e", *many[7:]])
    assert stream.events("skipped") == [7]
    stream.leave.set()
    await until(lambda: stream.has_ended)
    groups = await call(app, "GET", "/api/v1/groups")
    assert groups.json["groups"] == []


@pytest.mark.slow
async def test_a_tail_of_all_partitions_follows_new_partitions(orders, app, nursery):
    whole = OpenEventStream(app, nursery, f"{EVENTS}?partition=all")
    part = OpenEventStream(app, nursery, f"{EVENTS}?partition=1")
    await until(lambda: b"nothing yet" in whole.body and b"nothing yet" in part.body)
    await call(app, "PATCH", f"/api/v1/topics/{TOPIC}", {"partitions": 4})
    await produce(app, 3, "in the new partition")
    await until(lambda: whole.events("message"))
    (event,) = whole.events("message")
    assert (event["partition"], event["value"]) == (3, "in the new partition")
    await produce(app, 1, "in the old partition")
    await until(lambda: part.events("message"))
    assert [event["partition"] for event in part.events("message")] == [1]
    for stream in (whole, part):
        stream.leave.set()
        await until(lambda stream=stream: stream.has_ended)


async def test_a_tail_ends_when_the_broker_stops(orders, app, broker, nursery):
    stream = OpenEventStream(app, nursery, EVENTS)
    await until(lambda: b"nothing yet" in stream.body)
    broker.stopping.set()
    await until(lambda: stream.has_ended)
    assert stream.events("ended") == ["the tail has ended"]


async def test_open_tails_do_not_count_as_running_requests(orders, app, nursery):
    stream = OpenEventStream(app, nursery, EVENTS)
    await until(lambda: b"nothing yet" in stream.body)
    assert app.working == 0
    stream.leave.set()
    await until(lambda: stream.has_ended)


@pytest.mark.slow
async def test_the_number_of_tails_is_limited(orders, browser, app, nursery):
    streams = [OpenEventStream(app, nursery, EVENTS) for _ in range(tailing.TAILS_MAX)]
    await until(lambda: all(b"nothing yet" in stream.body for stream in streams))
    assert (await browser.get(EVENTS)).status == 429
    for stream in streams:
        stream.leave.set()
    await until(lambda: all(stream.has_ended for stream in streams))


async def test_a_tail_of_a_missing_topic_is_not_found(orders, browser):
    assert (await browser.get("/ui/topics/public/default/none/tail/events")).status == 404
    assert (await browser.get(f"{EVENTS}?partition=9")).status == 404


async def test_the_page_works_without_script_as_far_as_it_can(orders, browser):
    page = await browser.get(f"/ui/topics/{TOPIC}/tail")
    assert "needs script" in page.text
    assert (await browser.get(f"/ui/topics/{TOPIC}/tail?where=%28")).status == 400
