"""Large stored sets go from the file to the socket: the same bytes as copied sets."""

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
import trio.testing

from braidlog.broker.broker import Broker
from braidlog.broker.limits import OUTPUT_BYTES_ALL_MAX
from braidlog.protocols.kafka.limits import KafkaLimits
from braidlog.storage.log.file_part import LEASES_MAX, Leases
from braidlog.storage.log.local_files import TIMED_BYTES_MIN
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, fetch, message_set, produce
from tests.protocols.kafka.layouts import parse_set
from tests.protocols.kafka.talk import (
    FOO,
    FOO_NAME,
    OpenClient,
    fetch_one,
    produce_one,
    second_client,
)
from tests.protocols.kafka.test_later_versions import batch_of, fetch_v
from tests.waiting import until

SETS = 30


class Watched:
    """The leases of a broker, and the number of files given to a socket."""

    def __init__(self, broker: Broker) -> None:
        self.leases: Leases = broker._storage.files.leases
        self.sends = 0
        disk = self.leases.disk
        self._send = disk.send
        disk.send = self._counted  # type: ignore[method-assign]  # Of this disk alone.
        disk.is_cached = lambda *_: True  # type: ignore[method-assign]  # The same.

    def _counted(self, *arguments: Any) -> int:
        self.sends += 1
        return self._send(*arguments)

    @contextmanager
    def none_left(self) -> Iterator[None]:
        """Take all leases, so that bodies are copied."""
        self.leases.count += LEASES_MAX
        yield
        self.leases.count -= LEASES_MAX


def random_values(random_: random.Random, number: int) -> list[bytes]:
    """Return values for a set of 20 to 100 KB, sometimes of a few bytes."""
    if number % 9 == 4:
        return [b"small"]
    size = random_.choice((600, 2000))
    return [random_.randbytes(random_.randrange(size)) for _ in range(random_.randrange(140, 200))]


@pytest.fixture
def open_client(broker: Broker, open_client: OpenClient) -> OpenClient:
    """Lower the minimum size before any client connects, so that the tests need little data; the
    real minimum comes from measurements.
    """
    broker.shared_states["kafka"] = KafkaLimits(in_place_bytes_min=1 << 18)
    return open_client


@pytest.fixture
def watched(broker: Broker, client: RawKafka) -> Watched:
    return Watched(broker)


async def fill(client: RawKafka, make: Callable[..., bytes], seed: int) -> int:
    """Produce the sets; return the log end."""
    random_ = random.Random(seed)
    for number in range(SETS):
        await produce_one(client, make(*random_values(random_, number)))
    return (await fetch_one(client, 0, 1)).high_watermark


def data_of(fetched: m.Fetched) -> bytes:
    return b"".join(bytes(part) for part in fetched.parts)  # type: ignore[arg-type]  # As decoded.


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_old_fetches_get_the_same_bytes_both_ways(
    client: RawKafka, watched: Watched, seed: int
) -> None:
    end = await fill(client, message_set, seed)
    random_ = random.Random(seed)
    for number in range(10):
        offset = random_.randrange(end) if number % 2 else 0
        bytes_max = random_.choice((1 << 21, random_.randrange(1 << 22))) if number else 1 << 21
        for _ in range(2):  # The second fetch knows the places.
            in_place = await fetch_one(client, offset, bytes_max)
        with watched.none_left():
            copied = await fetch_one(client, offset, bytes_max)
        assert data_of(in_place) == data_of(copied), (offset, bytes_max)
        assert in_place.high_watermark == copied.high_watermark == end
    assert watched.sends
    assert watched.leases.count == 0


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3, 4, 7, 11])
async def test_later_fetches_get_the_same_bytes_both_ways(
    client: RawKafka, watched: Watched, version: int
) -> None:
    make = message_set if version < 4 else batch_of
    end = await fill(client, make, version)
    random_ = random.Random(version)
    for number in range(8):
        target = (random_.randrange(end), random_.randrange(1 << 21)) if number else (0, 1 << 21)
        bytes_max = random_.randrange(1 << 21) if number else 1 << 24
        for _ in range(2):
            in_place = await fetch_v(client, version, target, bytes_max)
        with watched.none_left():
            copied = await fetch_v(client, version, target, bytes_max)
        assert data_of_v(in_place) == data_of_v(copied), (target, bytes_max)
    assert watched.sends
    assert watched.leases.count == 0


def data_of_v(fetched: m.Fetched) -> bytes:
    return b"".join(map(bytes, fetched.parts))  # type: ignore[arg-type]  # As the tables read it.


@pytest.mark.slow
async def test_a_reader_reads_everything_in_place(client: RawKafka, watched: Watched) -> None:
    """Each fetch starts at the end of the answer before, as consumers do."""
    end = await fill(client, message_set, 7)
    with watched.none_left():
        whole = data_of(await fetch_one(client, 0, 1 << 24))
    for bytes_max in (1 << 18, 300_001, 1 << 21, 5 << 19):
        offset, messages = 0, []
        while offset < end:
            entries = parse_set(data_of(await fetch_one(client, offset, bytes_max)))
            messages += entries
            offset = entries[-1][0] + 1
        assert messages == parse_set(whole)
    assert watched.sends


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_consecutive_answers_equal_copied_answers(
    client: RawKafka, watched: Watched, seed: int
) -> None:
    """Answers of any size end and begin within sets, messages and heads."""
    random_ = random.Random(seed)
    end = await fill(client, message_set, seed)
    for offset in (0, random_.randrange(end)):
        while offset < end:
            bytes_max = random_.choice((1 << 18, random_.randrange(1 << 18, 1 << 19)))
            answer = await fetch_one(client, offset, bytes_max)
            with watched.none_left():
                copied = await fetch_one(client, offset, bytes_max)
            assert data_of(answer) == data_of(copied), (offset, bytes_max)
            offset = parse_set(data_of(answer))[-1][0] + random_.choice((1, 1, 1, 2))
    assert watched.sends
    assert watched.leases.count == 0


async def test_a_smaller_fetch_is_copied(client: RawKafka, watched: Watched) -> None:
    await fill(client, message_set, 6)
    for bytes_max in ((1 << 18) - 1, 1 << 18):
        assert not watched.sends
        assert (await fetch_one(client, 0, bytes_max)).size == bytes_max
    assert watched.sends


async def test_sets_that_a_thread_has_read_go_from_the_file(
    client: RawKafka, watched: Watched
) -> None:
    for _ in range(3):
        await produce_one(client, message_set(*[bytes(1000)] * 100))
    disk = watched.leases.disk
    whole = disk.read_cached

    def is_cold(path: str, fd: int, into: memoryview, pos: int) -> int:
        if len(into) >= TIMED_BYTES_MIN:
            raise BlockingIOError(errno.EAGAIN, "cold")
        return whole(path, fd, into, pos)

    disk.read_cached = is_cold  # type: ignore[method-assign]  # Of this disk alone.
    answer = await fetch_one(client, 0, 250_000)
    assert answer.size == 250_000
    assert watched.sends
    disk.read_cached = whole  # type: ignore[method-assign]
    with watched.none_left():
        copied = await fetch_one(client, 0, 250_000)
    assert data_of(answer) == data_of(copied)


async def test_only_a_part_of_the_last_set_is_read(client: RawKafka, watched: Watched) -> None:
    for _ in range(SETS):
        await produce_one(client, message_set(*[bytes(1000)] * 127))
    disk, read = watched.leases.disk, 0
    offset = 0
    whole = disk.read_cached

    def counted(path: str, fd: int, into: memoryview, pos: int) -> int:
        nonlocal read
        count = whole(path, fd, into, pos)
        read += count
        return count

    disk.read_cached = counted  # type: ignore[method-assign]  # Of this disk alone.
    for number in range(5):
        fetched = await fetch_one(client, offset, 1 << 18)
        assert fetched.size == 1 << 18, number
        offset = parse_set(data_of(fetched))[-1][0] + 1
    assert read < 5 * 25_000


async def test_a_set_above_the_read_size_fills_the_answer(
    client: RawKafka, watched: Watched
) -> None:
    sets = [message_set(*[bytes(1000)] * count) for count in (200, 200, 900, 900)]
    for stored_set in sets:
        await produce_one(client, stored_set)
    for bytes_max in (1 << 20, (1 << 20) - 1, 3 << 19):
        for _ in range(2):
            answer = await fetch_one(client, 0, bytes_max)
            with watched.none_left():
                copied = await fetch_one(client, 0, bytes_max)
            assert answer.size == bytes_max
            assert data_of(answer) == data_of(copied)
    assert watched.sends


async def test_several_partitions_share_an_answer(broker: Broker, client: RawKafka) -> None:
    broker.topics.partition(FOO_NAME, 0)
    await client.call(m.MetadataRequest([b"bar"]))
    watched = Watched(broker)
    end = await fill(client, message_set, 8)
    await client.call(produce(b"bar", {0: message_set(b"other")}))
    request = m.FetchRequest(
        -1, 0, 1, {FOO: {0: m.FetchTarget(0, 1 << 20)}, b"bar": {0: m.FetchTarget(0, 1 << 20)}}
    )
    for _ in range(2):
        reply = await client.call(request)
    assert isinstance(reply, m.FetchReply)
    with watched.none_left():
        copied = await client.call(request)
    assert isinstance(copied, m.FetchReply)
    for name in (FOO, b"bar"):
        assert data_of(reply.topics[name][0]) == data_of(copied.topics[name][0])
    assert watched.sends
    assert end


@pytest.mark.slow
async def test_a_fetch_that_waits_holds_no_file(
    broker: Broker, client: RawKafka, watched: Watched, open_client: OpenClient
) -> None:
    """The client sets the wait; then the answer has all present records, once."""
    await fill(client, message_set, 9)
    wanted = data_of(await fetch_one(client, 0, 1 << 22))
    waiting = await second_client(open_client)
    await waiting.send(fetch(FOO, {0: (0, 1 << 22)}, wait_ms=60_000, bytes_min=len(wanted) + 1))
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert watched.leases.count == 0
    await produce_one(client, message_set(b"last"))
    reply = await waiting.answer(m.FetchRequest)
    assert isinstance(reply, m.FetchReply)
    assert data_of(reply.topics[FOO][0]).startswith(wanted)
    assert parse_set(data_of(reply.topics[FOO][0]))[-1][1].endswith(b"last")


@pytest.mark.slow
async def test_silent_readers_hold_no_files_and_stay_within_the_budget(
    broker: Broker, client: RawKafka, watched: Watched, open_client: OpenClient
) -> None:
    await fill(client, message_set, 10)
    peers = [await second_client(open_client) for _ in range(200)]
    for peer in peers:
        await peer.send(*[fetch(FOO, {0: (0, 1 << 21)})] * 3)
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert watched.sends
    assert watched.leases.count == 0
    assert broker.output.used <= OUTPUT_BYTES_ALL_MAX
    for peer in peers:
        await peer.stream.aclose()
    await until(lambda: broker.output.used == 0)


async def test_a_deleted_topic_is_not_read(
    broker: Broker, client: RawKafka, watched: Watched
) -> None:
    await fill(client, message_set, 11)
    await fetch_one(client, 0, 1 << 21)
    partition = broker.topics.partition(FOO_NAME, 0)
    partition.remove()
    assert (await fetch_one(client, 0)).error == 3
    assert watched.leases.count == 0


async def test_a_disk_failure_within_an_answer_ends_the_connection(
    client: RawKafka, watched: Watched, open_client: OpenClient
) -> None:
    await fill(client, message_set, 12)
    with watched.none_left():
        wanted = data_of(await fetch_one(client, 0, 1 << 21))

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "bad block")

    watched._send = fail
    victim = await second_client(open_client)
    await fetch_one(client, 0, 1)
    await victim.send(fetch(FOO, {0: (0, 1 << 21)}))
    received = b"".join([bytes(data) async for data in victim.stream])
    assert len(received) < len(wanted)
    assert data_of(await fetch_one(client, 0, 1 << 21)) == wanted
