"""Stored batches over HTTP, and the position of a reader that decodes the batches."""

import pytest
import trio

from braidlog.broker.reading.raw import WIRE_SALT
from braidlog.storage.formats.batch import HEADER_BYTES, unpack
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import Nothing
from tests.broker.records import append
from tests.protocols.http.asgi import call, scope_of
from tests.protocols.http.records import append_records
from tests.waiting import until

MIB = 1 << 20
PATH = "/api/v1/log/public/default/orders"
GROUP = "/api/v1/groups/public/default/orders/export%3Aall"


@pytest.fixture
async def topic(broker):
    topic = await broker.topics.create(TopicName("public", "default", "orders"), 2)
    for _ in range(3):
        append_records(broker, topic.partition(0), 10)
    await broker.durability.all_durable()
    return topic


def offsets_in(content):
    offsets, pos = [], 0
    while pos < len(content):
        header = unpack(content, WIRE_SALT, pos)
        stop = pos + header.stored_bytes
        body = content[pos + HEADER_BYTES + header.positions_bytes : stop]
        decoded = PLAIN.decode(body, header.base_offset, header.append_us)
        offsets += [record.offset for record in decoded.records]
        pos = stop
    return offsets


async def test_the_list_has_every_partition_in_pages_of_whole_topics(app, topic, broker):
    await broker.topics.create(TopicName("public", "default", "zebra"), 1)
    first = (await call(app, "GET", "/api/v1/log?limit=1")).json
    assert [(partition["topic"], partition["partition"]) for partition in first["partitions"]] == [
        ("public/default/orders", 0),
        ("public/default/orders", 1),
    ]
    assert first["partitions"][0]["high_watermark"] == 30
    second = (await call(app, "GET", f"/api/v1/log?limit=1&after={first['next']}")).json
    assert [partition["topic"] for partition in second["partitions"]] == ["public/default/zebra"]
    assert second["next"] is None


async def test_the_list_hides_forbidden_topics(app, topic, broker):
    class OnlyTheList(Nothing):
        def allows(self, principal, action, resource):
            return str(resource) == "cluster"

    broker.access.rules = OnlyTheList()
    assert (await call(app, "GET", "/api/v1/log")).json["partitions"] == []


async def test_batches_are_returned_whole_from_the_offset_on(app, topic):
    answer = await call(app, "GET", f"{PATH}/0/batches?offset=15")
    assert answer.status == 200
    assert offsets_in(answer.body) == list(range(10, 30))
    assert answer.headers["x-braidlog-next-offset"] == "30"
    answer = await call(app, "GET", f"{PATH}/0/batches?offset=0&bytes_max=1")
    assert offsets_in(answer.body) == list(range(10))
    end = await call(app, "GET", f"{PATH}/0/batches?offset=30")
    assert (end.status, end.body) == (200, b"")


async def test_an_answer_holds_its_room_of_the_output_budget_only_while_it_is_sent(
    app, topic, broker
):
    await call(app, "GET", f"{PATH}/0/batches?offset=0")
    assert broker.output.used == 0


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        (f"{PATH}/0/batches?offset=31", 416, "offset_out_of_range"),
        (f"{PATH}/0/batches", 400, "bad_query"),
        (f"{PATH}/0/batches?offset=-1", 400, "bad_query"),
        (f"{PATH}/5/batches?offset=0", 404, "partition_not_found"),
        (f"{PATH}/x/batches?offset=0", 404, "partition_not_found"),
        (f"{PATH}/0/batches?offset=0&partition_id=99", 404, "partition_not_found"),
        (f"{PATH}/0?time_us=soon", 400, "bad_query"),
        ("/api/v1/log/public/default/none/0", 404, "topic_not_found"),
    ],
)
async def test_an_impossible_read_is_a_clear_error(app, topic, path, status, code):
    answer = await call(app, "GET", path)
    assert (answer.status, answer.json["code"]) == (status, code)


async def test_the_state_of_a_partition_and_the_offset_of_a_time(app, topic):
    state = (await call(app, "GET", f"{PATH}/0?time_us=0")).json
    assert (state["high_watermark"], state["first_offset"]) == (30, 0)
    late = (await call(app, "GET", f"{PATH}/0?time_us={1 << 62}")).json
    assert late["first_offset"] is None


async def test_a_position_is_an_ordinary_groups_position(app, topic, broker):
    answer = await call(app, "PUT", f"{GROUP}/positions", {"positions": {"0": 12, "1": 0}})
    assert answer.status == 204
    group = broker.subscriptions.get(topic, b"export:all")
    assert (group.position(0), group.position(1), group.backlog(0)) == (12, 0, 18)
    nowhere = await call(app, "PUT", f"{GROUP}/positions", {"positions": {"7": 1}})
    assert nowhere.status == 404


async def test_an_answer_holds_memory_for_a_batch_larger_than_asked_until_sent(app, topic, broker):
    """The memory is reserved before the batch is read; the answer is sent in pieces."""
    partition, size = topic.partition(1), 5 * MIB
    await append(broker, partition, "kafka", [bytes(size)])
    held, sizes, scope = [], [], scope_of("GET", f"{PATH}/1/batches?offset=0&bytes_max=1000", None)

    async def receive():
        await trio.sleep_forever()

    async def send(message):
        sizes.append(len(message.get("body", b"")))
        held.append(broker.output.used)

    await app(scope, receive, send)
    assert sum(sizes) > size >= 10 * max(sizes)
    assert size < min(held) <= max(held) < size + MIB
    assert broker.output.used == 0


async def test_a_batch_larger_than_asked_waits_for_memory(app, topic, broker, nursery):
    await append(broker, topic.partition(1), "kafka", [bytes(5 * MIB)])
    output, answers = broker.output, []
    held = output._bytes_max - 4 * MIB
    output.charge(held)

    async def ask():
        answers.append(await call(app, "GET", f"{PATH}/1/batches?offset=0&bytes_max=1000"))

    nursery.start_soon(ask)
    await until(lambda: output._large)
    assert output.used == held and not answers
    output.charge(-held)
    await until(lambda: answers)
    assert answers[0].status == 200 and len(answers[0].body) > 5 * MIB
    assert output.used == 0
