"""Consumers over HTTP: each row of the table of consumers in docs/api.md."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.delivery.consumer import Consumer, SubscriptionKind
from braidlog.storage.formats.pulsar.entry_runs import ENTRY_PREFIX, PULSAR
from braidlog.storage.formats.pulsar.pb.PulsarEntry_pb2 import BatchedMetadata, EntryMetadata
from tests.protocols.http.asgi import call
from tests.protocols.http.pip64.conftest import BASE, EARLIEST, SUBSCRIPTION, consumer_of
from tests.waiting import until

CURSOR = f"{SUBSCRIPTION}/cursor"


@pytest.fixture
def produce(ask):
    """Return `produce`: `await produce(values, partition)` returns the ids."""

    async def produce(values, partition=1):
        body = {"messages": [{"value": str(value)} for value in values]}
        answer = await ask("POST", f"{BASE}/partitions/{partition}", body)
        assert answer.status == 200, answer.body
        return [result["messageId"] for result in answer.json["messageIds"]]

    return produce


async def fetch(ask, path, query="?timeout=0"):
    answer = await ask("GET", path + query)
    assert answer.status == 200, answer.body
    return answer.json["messages"]


@pytest.fixture
def begin_fetch(ask, nursery):
    """Return `begin_fetch`: `await begin_fetch(path)` starts a waiting fetch and returns the list
    of its messages.
    """

    async def begin_fetch(path):
        answers = []

        async def wait():
            answers.append(await fetch(ask, path, "?timeout=60000"))

        nursery.start_soon(wait)
        await wait_all_tasks_blocked(0.01)
        return answers

    return begin_fetch


def deliveries(messages):
    return [(int(message["value"]), message["redeliveryCount"]) for message in messages]


async def ack(ask, *ids, kind="Individual"):
    answer = await ask("POST", CURSOR, {"type": kind, "messageIds": list(ids)})
    assert answer.status == 200, answer.body
    return answer.json["cursor"]


async def test_create_fetch_acknowledge_delete(broker, orders, ask, produce):
    ids = await produce([0, 1, 2])
    answer = await ask("POST", SUBSCRIPTION, {"name": "w1", **EARLIEST}, headers={"Host": "h:1"})
    assert answer.status == 201, answer.body
    identity = answer.json["id"]
    assert answer.json == {
        "id": identity,
        "name": "w1",
        "base_uri": f"http://h:1{SUBSCRIPTION}/consumers/{identity}",
        "subscription_type": "Shared",
        "schema_version": None,
    }
    answer = await ask("GET", f"{SUBSCRIPTION}/consumer/{identity}/messages?timeout=1000")
    messages = answer.json["messages"]
    assert [message["messageId"] for message in messages] == ids
    assert messages[0] == {
        "messageId": "CAIQABgB",
        "partition": 1,
        "value": "0",
        "properties": {},
        "publishTime": 1795228435964,
        "encoding": "utf8",
        "producerName": "rest",
        "redeliveryCount": 0,
    }
    cursor = await ack(ask, ids[0], ids[2])
    assert cursor["type"] == "Shared"
    assert cursor["consumers"] == [{"id": identity, "name": "w1", "protocol": "rest", "unacked": 1}]
    assert (cursor["unacked"], cursor["backlog"]) == (1, 1)
    assert cursor["partitions"][1] == {
        "partition": 1,
        "mark_delete": "CAIQABgB",
        "read_position": "CAIQAxgB",
        "individually_acked": [[2, 2]],
        "backlog": 1,
        "log_end_offset": 3,
    }
    answer = await ask("DELETE", f"{SUBSCRIPTION}/consumers/{identity}")
    assert (answer.status, answer.body) == (204, b"")
    answer = await ask("DELETE", f"{SUBSCRIPTION}/consumers/{identity}")
    assert (answer.status, answer.json["error_code"]) == (404, 40403)
    assert not len(broker.dispatchers)


@pytest.mark.parametrize("created", ["subscription/billing", "subscriptions/billing/consumers"])
@pytest.mark.parametrize(
    "used", ["subscription/billing/consumers", "subscriptions/billing/consumer"]
)
@pytest.mark.parametrize("base", [BASE, "/topics/persistent/public/default/orders"])
async def test_every_spelling_of_the_paths(orders, ask, produce, base, created, used):
    await produce([5])
    identity = (await ask("POST", f"{base}/{created}", EARLIEST)).json["id"]
    answer = await ask("GET", f"{base}/{used}/{identity}/messages?timeout=1000")
    assert deliveries(answer.json["messages"]) == [(5, 0)]
    assert (await ask("DELETE", f"{base}/{used}/{identity}")).status == 204


async def test_a_new_subscription_starts_at_the_end_by_default(orders, ask, produce):
    await produce([0])
    identity = (await ask("POST", SUBSCRIPTION, {})).json["id"]
    await produce([1])
    path = f"{SUBSCRIPTION}/consumer/{identity}/messages"
    assert deliveries(await fetch(ask, path)) == [(1, 0)]


async def test_a_fetch_waits_for_its_first_message(produce, create, begin_fetch):
    answers = await begin_fetch(await create())
    assert not answers
    await produce([1, 2])
    with trio.fail_after(5):
        while not answers:
            await trio.sleep(0.01)
    assert deliveries(answers[0]) == [(1, 0), (2, 0)]


async def test_a_fetch_that_waits_holds_no_room(broker, ask, produce, create, nursery):
    path = await create()
    messages = []

    async def wait():
        messages.extend(await fetch(ask, path, "?timeout=60000"))

    nursery.start_soon(wait)
    await wait_all_tasks_blocked(0.01)
    # Thousands of waiting fetches would leave nothing for other answers.
    assert broker.output.used == 0
    await produce([1])
    await until(lambda: messages)
    assert broker.output.used == 0


async def test_an_unacknowledged_message_is_not_sent_twice_at_once(ask, produce, create):
    await produce([0, 1])
    path = await create()
    assert deliveries(await fetch(ask, path)) == [(0, 0), (1, 0)]
    assert await fetch(ask, path) == []


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_head_request_of_a_fetch_takes_no_message(app, ask, produce, create, accept):
    await produce([0])
    messages = await create()
    with trio.fail_after(5):
        answer = await call(app, "HEAD", messages, headers={"Accept": accept}, leave=trio.Event())
    assert answer.status == 200
    assert deliveries(await fetch(ask, messages)) == [(0, 0)]


@pytest.mark.parametrize("query", ["max_messages=2", "max_bytes=2"])
async def test_a_fetch_after_a_limited_fetch_continues(ask, produce, create, query):
    await produce(range(5))
    path = await create()
    query = f"?timeout=0&{query}"
    fetches = [deliveries(await fetch(ask, path, query)) for _ in range(3)]
    seen = [[value for value, _ in fetch_answer] for fetch_answer in fetches]
    assert seen == [[0, 1], [2, 3], [4]]


async def test_a_first_message_above_max_bytes_is_still_sent(ask, produce, create):
    await produce([123456, 7])
    path = await create()
    assert deliveries(await fetch(ask, path, "?timeout=0&max_bytes=1")) == [(123456, 0)]
    assert deliveries(await fetch(ask, path, "?timeout=0&max_bytes=1")) == [(7, 0)]


async def test_two_consumers_share_and_a_closed_consumers_messages_go_to_the_other(
    ask, produce, create
):
    await produce(range(4))
    first, second = await create("w1"), await create("w2")
    shared = deliveries(await fetch(ask, first, "?timeout=0&max_messages=2"))
    two = deliveries(await fetch(ask, second))
    assert sorted(shared + two) == [(n, 0) for n in range(4)]
    await ask("DELETE", first.removesuffix("/messages").replace("consumer/", "consumers/"))
    assert sorted(deliveries(await fetch(ask, second, "?timeout=1000"))) == [
        (v, 1) for v, _ in shared
    ]


async def test_a_negative_acknowledgement_returns_the_message(ask, produce, create):
    ids = await produce(range(3))
    path = await create()
    await fetch(ask, path)
    await ack(ask, ids[1], kind="Negative")
    assert deliveries(await fetch(ask, path, "?timeout=1000")) == [(1, 1)]


async def test_a_late_acknowledgement_returns_the_message(app, ask, produce, create):
    ids = await produce(range(3))
    path = await create(ack_timeout_ms=5000)
    await fetch(ask, path)
    await ack(ask, ids[0])
    await app.consumers.sweep(trio.current_time() + 4)
    assert await fetch(ask, path) == []
    await app.consumers.sweep(trio.current_time() + 6)
    assert deliveries(await fetch(ask, path, "?timeout=1000")) == [(1, 1), (2, 1)]


async def test_without_ack_timeout_no_message_is_returned(app, ask, produce, create):
    await produce([0])
    path = await create(ack_timeout_ms=0)
    await fetch(ask, path)
    await app.consumers.sweep(trio.current_time() + 200)
    assert await fetch(ask, path) == []


async def test_an_idle_consumer_ends_and_its_id_can_be_reused(app, ask, produce, create):
    await produce([0, 1])
    path = await create(id="cash-1")
    other = await create("w2")
    await fetch(ask, path)
    consumer_of(app, other.split("/")[-2]).last_used += 400
    await app.consumers.sweep(trio.current_time())
    consumer_of(app, "cash-1").last_used -= 301
    await app.consumers.sweep(trio.current_time())
    answer = await ask("GET", path)
    assert (answer.status, answer.json["error_code"]) == (404, 40403)
    assert deliveries(await fetch(ask, other, "?timeout=1000")) == [(0, 1), (1, 1)]
    assert await create(id="cash-1") == path


async def test_a_known_id_is_attached_again(ask, create):
    await create(id="cash-1")
    answer = await ask("POST", SUBSCRIPTION, {"id": "cash-1"})
    assert (answer.status, answer.json["name"]) == (200, "w1")
    answer = await ask("POST", f"{BASE}/subscription/other", {"id": "cash-1"})
    # A fresh id: an id does not reveal the existence of another consumer.
    assert answer.status == 201


async def test_a_newer_fetch_replaces_an_open_fetch(produce, create, begin_fetch):
    path = await create()
    older = await begin_fetch(path)
    newer = await begin_fetch(path)
    assert (older, newer) == ([[]], [])
    await produce([1])
    await wait_all_tasks_blocked(0.02)
    assert deliveries(newer[0]) == [(1, 0)]


@pytest.mark.parametrize("stops", [False, True], ids=["deletion", "stop"])
async def test_the_end_answers_an_open_fetch_at_once(broker, ask, create, begin_fetch, stops):
    path = await create()
    answers = await begin_fetch(path)
    if stops:
        broker.stop()
    else:
        await ask("DELETE", path.removesuffix("/messages"))
    await wait_all_tasks_blocked(0.01)
    assert answers == [[]]


async def test_a_disconnected_client_keeps_no_message(app, ask, produce, create, nursery):
    path = await create()
    leave = trio.Event()
    nursery.start_soon(_leaving, app, path, leave)
    await wait_all_tasks_blocked(0.01)
    leave.set()
    await wait_all_tasks_blocked(0.01)
    await produce([1])
    await wait_all_tasks_blocked(0.01)
    assert deliveries(await fetch(ask, path)) == [(1, 0)]


async def _leaving(app, path, leave):
    await call(app, "GET", f"{path}?timeout=60000", leave=leave)


async def test_a_seek_redelivers_everything(ask, produce, create):
    ids = await produce(range(3))
    path = await create()
    await fetch(ask, path)
    await ack(ask, *ids)
    answer = await ask("POST", CURSOR, {"type": "Seek", "messageIds": [ids[1]]})
    assert answer.status == 200, answer.body
    assert deliveries(await fetch(ask, path, "?timeout=1000")) == [(1, 0), (2, 0)]


async def test_an_ended_subscription_ends_its_consumers(broker, orders, ask, create):
    path = await create()
    broker.subscriptions.delete(orders, b"billing")
    answer = await ask("GET", path)
    assert (answer.status, answer.json["error_code"]) == (404, 40403)


async def test_a_new_partition_is_read_too(broker, orders, ask, produce, create):
    path = await create()
    await broker.topics.add_partitions(orders.name, 3)
    await produce([9], partition=2)
    (message,) = await fetch(ask, path, "?timeout=1000")
    assert message["partition"] == 2


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Key_Shared"])
async def test_the_other_kinds(ask, produce, create, kind):
    ids = await produce(range(4))
    path = await create(subscription_type=kind)
    assert deliveries(await fetch(ask, path, "?timeout=1000&max_messages=3")) == [
        (0, 0),
        (1, 0),
        (2, 0),
    ]
    assert deliveries(await fetch(ask, path)) == [(3, 0)]
    cursor = await ack(ask, ids[2], kind="Cumulative")
    assert (cursor["type"], cursor["backlog"]) == (kind, 1)
    await ack(ask, ids[3], kind="Negative")
    assert [value for value, _ in deliveries(await fetch(ask, path, "?timeout=1000"))] == [3]


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
async def test_a_delayed_message_waits(ask, create, kind):
    later = {"value": "0", "deliverAt": 2**42}  # In the year 2109.
    due = {"value": "1", "deliverAt": 1000}
    body = {"messages": [later, due, {"value": "2"}]}
    await ask("POST", f"{BASE}/partitions/1", body)
    path = await create(subscription_type=kind)
    assert deliveries(await fetch(ask, path, "?timeout=1000")) == [(1, 0), (2, 0)]
    stats = (await ask("GET", "/admin/v2/persistent/public/default/orders/partitioned-stats")).json
    shown = stats["subscriptions"]["billing"]
    assert [shown[key] for key in ("msgBacklog", "msgBacklogNoDelayed", "msgDelayed")] == [3, 2, 1]
    read = (await ask("GET", f"{BASE}/partitions/1/messages")).json["messages"]
    assert [message["value"] for message in read] == ["0", "1", "2"]  # Reads do not wait.


async def test_ordered_subscriptions_delay_no_message(ask, create):
    await ask("POST", f"{BASE}/partitions/1", {"messages": [{"value": "0", "deliverAt": 2**42}]})
    path = await create(subscription_type="Exclusive")
    assert deliveries(await fetch(ask, path, "?timeout=1000")) == [(0, 0)]


async def test_a_second_exclusive_consumer_is_refused(ask, create):
    await create(subscription_type="Exclusive")
    for kind in ("Exclusive", "Shared"):
        answer = await ask("POST", SUBSCRIPTION, {"name": "w2", "subscription_type": kind})
        assert (answer.status, answer.json["error_code"]) == (409, 40903)


async def test_cumulative_acks_are_refused_for_a_shared_subscription(ask, produce, create):
    ids = await produce([0])
    await create("w1")
    await create("w2")
    answer = await ask("POST", CURSOR, {"type": "Cumulative", "messageIds": ids})
    assert (answer.status, answer.json["error_code"]) == (422, 42206)


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (SUBSCRIPTION, {"name": "w1"}, 40902),
        (SUBSCRIPTION, {"name": "a/b"}, 41201),
        (SUBSCRIPTION, {"name": ""}, 41201),
        (SUBSCRIPTION, {"id": "a/b"}, 41201),
        (SUBSCRIPTION, {"subscription_type": "Some"}, 40001),
        (SUBSCRIPTION, {"initial_position": "Middle"}, 40001),
        (SUBSCRIPTION, {"ack_timeout_ms": 999}, 40001),
        (SUBSCRIPTION, {"ack_timeout_ms": -1}, 40001),
        (SUBSCRIPTION, {"schema_type": "NUMBER"}, 42204),
        (SUBSCRIPTION, {"schema_type": "KEY_VALUE"}, 42201),
        (SUBSCRIPTION, [], 40001),
        (f"{BASE}/subscription/a%2Fb", {}, 41201),
        (f"{BASE}/subscription/%FF", {}, 41201),
        ("/topics/public/default/none/subscription/billing", {}, 40401),
    ],
)
async def test_invalid_consumers_are_refused(app, ask, create, path, body, code):
    await create("w1")
    answer = await ask("POST", path, body)
    assert answer.json["error_code"] == code, answer.body
    assert len(app.consumers) == 1


@pytest.mark.parametrize("app", [{"consumers_max": 2}], indirect=True)
async def test_consumers_are_limited_in_number(ask, create):
    await create("w1")
    await create("w2")
    answer = await ask("POST", SUBSCRIPTION, {})
    assert (answer.status, answer.json["error_code"]) == (429, 42901)


async def test_a_consumer_reads_by_its_schema(ask, produce, create):
    await ask(
        "POST", f"{BASE}/partitions/1", {"messages": [{"value": "AAAABQ==", "encoding": "base64"}]}
    )
    path = await create(schema_type="INT32")
    (message,) = await fetch(ask, path)
    assert message["value"] == 5 and "encoding" not in message


class PulsarLike(Consumer):
    """A consumer of another listener."""

    protocol = "pulsar"

    def __init__(self, name):
        super().__init__(name)
        self.taken = []

    def send(self, entries, size):
        self.taken += [entry.offset for entry in entries]

    def takes_more(self):
        return True

    def disconnect(self):
        pass

    async def is_alive(self):
        return True


async def test_a_consumer_of_another_listener_shares_the_messages(
    broker, orders, ask, produce, create
):
    path = await create()
    other = PulsarLike("p")
    dispatcher = broker.dispatchers.find(orders.partitions[1], b"billing")
    broker.dispatchers.attach(dispatcher, other)
    dispatcher.flow(other, 10)
    await produce(range(100))
    await wait_all_tasks_blocked(0.02)
    seen = [value for value, _ in deliveries(await fetch(ask, path))]
    assert len(other.taken) >= 10
    assert sorted(seen + other.taken) == list(range(100))
    cursor = (await ask("GET", CURSOR)).json["cursor"]
    assert [(consumer["name"], consumer["protocol"]) for consumer in cursor["consumers"]] == [
        ("w1", "rest"),
        ("p", "pulsar"),
    ]


def batch_entry(values):
    """Return a batch of Pulsar messages, as a client sends the batch."""
    payload = b""
    for value in values:
        single = BatchedMetadata(payload_size=len(value)).SerializeToString()
        payload += len(single).to_bytes(4, "big") + single + value
    metadata = EntryMetadata(producer_name=b"p", sequence_id=0, publish_time=1)
    metadata.num_messages_in_batch = len(values)
    packed = metadata.SerializeToString()
    entry = len(packed).to_bytes(4, "big") + packed + payload
    return ENTRY_PREFIX.pack(len(entry), 0, len(values)) + entry


async def test_a_pulsar_batch_is_delivered_message_by_message(broker, orders, ask, create):
    body = batch_entry([b"0", b"1", b"2", b"3"])
    orders.partitions[1].append(
        [body], PULSAR.inspect(body), body_format=PULSAR.format, append_us=1
    )
    path = await create()
    first = await fetch(ask, path, "?timeout=1000&max_messages=3")
    ids = ["CAIQABgBIAA=", "CAIQABgBIAE=", "CAIQABgBIAI="]
    assert [message["messageId"] for message in first] == ids
    cursor = await ack(ask, first[0]["messageId"], first[2]["messageId"])
    assert cursor["partitions"][1]["individually_acked"] == [[2, 2]]
    assert cursor["partitions"][1]["mark_delete"] == "CAIQABgBIAA="
    assert deliveries(await fetch(ask, path)) == [(3, 0)]
    await ack(ask, first[1]["messageId"], kind="Negative")
    assert [value for value, _ in deliveries(await fetch(ask, path, "?timeout=1000"))] == [
        1,
        3,
    ]


def test_every_kind_of_subscription_is_offered():
    kinds = {kind.value for kind in SubscriptionKind}
    assert kinds == {"Exclusive", "Shared", "Failover", "Key_Shared"}
