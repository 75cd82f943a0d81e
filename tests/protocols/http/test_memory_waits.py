"""A request that waits for output memory ends when its client leaves or the broker stops."""

import cramjam
import pytest
import trio

from braidlog.broker.delivery.read_ahead import READ_AHEAD_BYTES_MIN
from braidlog.protocols.http.requests import REQUESTS_MAX
from braidlog.storage.formats.api import BatchFlag, BodyInfo
from braidlog.storage.large import LARGE_BYTES_MIN
from braidlog.storage.metadata.names import TopicName
from tests.broker.records import store
from tests.protocols.http.asgi import call
from tests.storage.formats.entries_of import body, entry, metadata
from tests.waiting import until

TOPIC = "/topics/public/default/memory"
EVENTS = {"Accept": "text/event-stream"}
READS = {
    "read": (f"{TOPIC}/partitions/0/messages", {}),
    "stream": (f"{TOPIC}/partitions/0/messages", EVENTS),
    "raw log": ("/api/v1/log/public/default/memory/0/batches?offset=0", {}),
}


@pytest.fixture
async def partition(broker):
    """One record that unpacks to LARGE_BYTES_MIN."""
    topic = await broker.topics.create(TopicName("public", "default", "memory"), 1)
    about = metadata(compression=3, uncompressed_size=LARGE_BYTES_MIN)
    packed = bytes(cramjam.zstd.compress(bytes(LARGE_BYTES_MIN)))
    stored = body((entry(about, packed), 1))
    await store(broker, topic.partitions[0], 3, stored, BodyInfo(1, flags=BatchFlag.COMPRESSED))
    return topic.partitions[0]


@pytest.fixture
def begin(app, nursery):
    """`begin(path, headers)`: the event that has its client leave, and its answers when over."""

    def begin(path, headers):
        leave, answers = trio.Event(), []

        async def run():
            answers.append(await call(app, "GET", path, headers=headers, leave=leave))

        nursery.start_soon(run)
        return leave, answers

    return begin


async def consumer(app):
    wanted = {"name": "c", "id": "c", "initial_position": "Earliest"}
    path = f"{TOPIC}/subscriptions/s/consumers"
    assert (await call(app, "POST", path, wanted)).status == 201
    return f"{path}/c/messages"


# The raw log unpacks nothing, and a consumer's first wait is for its delivery.
WAITS = [(name, "first") for name in READS] + [
    (name, "large") for name in ("read", "stream", "consumer", "consumer's stream")
]


@pytest.mark.parametrize(("name", "wait"), WAITS)
async def test_a_client_that_leaves_ends_its_wait_for_memory(
    broker, app, partition, begin, name, wait
):
    """Before the read, or for a large record that was read."""
    path, headers = READS.get(name) or (await consumer(app), EVENTS if "stream" in name else {})
    output, is_large = broker.output, wait == "large"
    held = output._bytes_max - is_large * LARGE_BYTES_MIN
    output.charge(held)
    leave, answers = begin(path, headers)
    await until(lambda: output._large if is_large else output._ready)
    assert app.working == 0
    leave.set()
    await until(lambda: answers)
    assert not (output._large if is_large else output._ready)
    assert output.used <= held + READ_AHEAD_BYTES_MIN
    output.charge(-held)


@pytest.mark.parametrize("name", READS)
async def test_a_stop_ends_the_wait_for_memory(broker, partition, begin, name):
    held = broker.output._bytes_max
    broker.output.charge(held)
    _, answers = begin(*READS[name])
    await until(lambda: broker.output._ready)
    broker.stopping.set()
    await until(lambda: answers)
    assert name == "stream" or answers[0].json["reason"] == "the broker is stopping"
    assert broker.output.used == held
    broker.output.charge(-held)


async def test_requests_that_wait_for_memory_refuse_no_others(broker, app, partition, begin):
    held = broker.output._bytes_max
    broker.output.charge(held)
    begun = [begin(*READS["read"]) for _ in range(REQUESTS_MAX + 1)]
    await until(lambda: len(broker.output._ready) == len(begun))
    assert (await call(app, "GET", "/healthz")).status == 200
    for leave, _ in begun:
        leave.set()
    await until(lambda: all(answers for _, answers in begun))
    broker.output.charge(-held)
