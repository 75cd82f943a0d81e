"""FETCH_MESSAGES of dialect W: messages of several partitions in an answer."""

import cProfile
import struct

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.access.access import Access
from braidlog.broker.server.adapters import load
from braidlog.protocols.iggy.deferred import until_records
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.readers import target
from tests.broker.access.rules import Nothing
from tests.protocols.iggy.test_vsr import frame
from tests.protocols.iggy.vtalk import CREATE_STREAM, CREATE_TOPIC, STREAM, TOPIC
from tests.protocols.iggy.wtalk import SEND, client_w, sent

FETCH, CANCEL, PING, JOIN = 109, 108, 1, 148
FETCHES = 5
OFFSET, NEXT, FIRST = 1, 5, 3
SECOND_US = 1_000_000
SECTION = struct.Struct("<IIQIQQQQI")
GROUP = b"\x02\x02\x03grp"
CONSUMER = b"\x01\x01\x04\x07\0\0\0"


class FetchingClient:
    """A client of W with a topic of three partitions."""

    def __init__(self, client, incarnations):
        self.client = client
        self.incarnations = incarnations

    def body(
        self,
        starts,
        *,
        wait_us=0,
        min_count=1,
        count=100,
        bytes_max=1 << 20,
        own_bytes_max=None,
        commit=False,
        consumer=CONSUMER,
        timeout_us=60 * SECOND_US,
    ):
        """Return the body of a fetch; `starts` has kind and value of each partition's start."""
        limits = (wait_us, timeout_us, min_count, count, bytes_max, commit, len(starts))
        parts = [consumer + STREAM + TOPIC + struct.pack("<QQIIIBI", *limits)]
        for partition, (kind, value) in starts.items():
            limit = own_bytes_max or bytes_max
            incarnation = self.incarnations.get(partition, 1)
            parts.append(struct.pack("<IBQIQQ", partition, kind, value, limit, incarnation, 0))
        return b"".join(parts)

    async def fetch(self, starts, **options):
        """Return the sections of an answer, and the bytes of the messages of each."""
        status, body = await self.client.query(FETCH, self.body(starts, **options))
        if status:
            return ErrorCode(status)
        return sections_of(body)

    async def send(self, partition, *payloads):
        body = sent(*payloads, partition=partition)
        incarnation = self.incarnations[partition]
        assert (await self.client.perform(SEND, body, incarnation=incarnation))[0] == 0


def sections_of(body):
    (count,) = struct.unpack_from("<I", body)
    pos, sections = 4 + count * SECTION.size, []
    for at in range(count):
        section = SECTION.unpack_from(body, 4 + at * SECTION.size)
        sections.append((section, body[pos : pos + section[-1]]))
        pos += section[-1]
    assert pos == len(body)
    return sections


def counts(sections):
    """Return partition, status, number of messages and next offset of each section."""
    return [(s[0], s[1], s[3], s[7]) for s, _ in sections]


@pytest.fixture
async def fetcher(broker, open_client):
    client = await client_w(open_client)
    assert await client.status(CREATE_STREAM, STREAM[1:]) == 0
    assert await client.status(CREATE_TOPIC, STREAM + struct.pack("<I", 3) + TOPIC[1:]) == 0
    incarnations = {}
    for partition in range(3):
        _, route = await client.query(105, STREAM + TOPIC + struct.pack("<I", partition))
        (incarnations[partition],) = struct.unpack_from("<Q", route)
    return FetchingClient(client, incarnations)


async def test_all_partitions_are_read(fetcher):
    await fetcher.send(0, b"a", b"b")
    await fetcher.send(2, b"c")
    sections = await fetcher.fetch({0: (OFFSET, 1), 1: (OFFSET, 0), 2: (NEXT, 0)})
    assert counts(sections) == [(0, 0, 1, 2), (1, 0, 0, 0), (2, 0, 1, 1)]
    assert [data[-1:] for _, data in sections] == [b"b", b"", b"c"]
    assert [section[4] for section, _ in sections] == [*fetcher.incarnations.values()]


async def test_the_count_is_that_of_all_partitions(fetcher):
    await fetcher.send(0, b"a", b"b")
    await fetcher.send(1, b"c", b"d")
    starts = {0: (OFFSET, 0), 1: (OFFSET, 0), 2: (OFFSET, 0)}
    assert counts(await fetcher.fetch(starts, count=3)) == [(0, 0, 2, 2), (1, 0, 1, 1)]


async def test_the_answer_is_no_longer_than_the_client_reads(fetcher):
    """The records of all sections have at most `max_bytes`, also as batches of a message each."""
    for _ in range(20):
        await fetcher.send(0, b"a")
        await fetcher.send(1, bytes(1000))
    limit = 4096
    starts = {0: (OFFSET, 0), 1: (OFFSET, 0)}
    sections = await fetcher.fetch(starts, bytes_max=limit, own_bytes_max=limit // 2)
    assert sum(len(data) for _, data in sections) <= limit
    assert sections[0][0][3] >= 1
    # A message that does not fit comes alone.
    await fetcher.send(2, bytes(10_000))
    (section, data), *_ = await fetcher.fetch({2: (OFFSET, 0), 0: (OFFSET, 0)}, bytes_max=limit)
    assert section[3] == 1
    assert len(data) > limit


async def test_messages_that_are_fetched_are_committed(fetcher):
    await fetcher.send(0, b"a", b"b")
    await fetcher.send(1, b"c")
    starts = {0: (NEXT, 0), 1: (NEXT, 0)}
    assert counts(await fetcher.fetch(starts, commit=True)) == [(0, 0, 2, 2), (1, 0, 1, 1)]
    assert counts(await fetcher.fetch(starts)) == [(0, 0, 0, 2), (1, 0, 0, 1)]


async def test_an_error_of_a_partition_is_part_of_the_answer(fetcher):
    await fetcher.send(0, b"a")
    wrong = fetcher.incarnations[1]
    fetcher.incarnations[1] = 99
    starts = {0: (OFFSET, 0), 1: (OFFSET, 0), 7: (OFFSET, 0)}
    sections = await fetcher.fetch(starts, wait_us=SECOND_US)
    assert [section[:2] for section, _ in sections] == [(0, 0), (1, 87), (7, 3007)]
    fetcher.incarnations[1] = wrong
    status = (await fetcher.client.perform(139, STREAM + TOPIC + b"\x03grp"))[0]
    assert status == 0
    sections = await fetcher.fetch({0: (NEXT, 0)}, consumer=GROUP, wait_us=SECOND_US)
    assert [section[:2] for section, _ in sections] == [(0, ErrorCode.GROUP_PARTITION_NOT_OWNED)]


async def test_a_fetch_waits_for_messages_of_any_partition(fetcher, open_client):
    await fetcher.send(0, b"a")
    starts = {0: (OFFSET, 0), 1: (OFFSET, 0)}
    body = fetcher.body(starts, wait_us=30 * SECOND_US, min_count=3)
    await fetcher.client.send_only(frame(operation=2, code=FETCH, body=body, number=5), 0)
    await wait_all_tasks_blocked()
    other = FetchingClient(await client_w(open_client), fetcher.incarnations)
    await other.send(1, b"b")
    await wait_all_tasks_blocked()
    await fetcher.client.send_only(frame(operation=2, code=PING, number=6), 0)
    assert struct.unpack_from("<Q", await fetcher.client.next_frame(), 200) == (6,)
    await other.send(1, b"c")
    answer = await fetcher.client.next_frame()
    assert struct.unpack_from("<Q", answer, 200) == (5,)
    assert counts(sections_of(answer[256:])) == [(0, 0, 1, 1), (1, 0, 2, 2)]


class PollTaskSteps(trio.abc.Instrument):
    """Counts the steps of the tasks that wait for messages."""

    count = 0

    def before_task_step(self, task):
        self.count += task.name.endswith("_poll_in_task")


async def test_a_waiting_fetch_of_a_plain_consumer_sleeps(fetcher, mock_clock):
    """Only a group's member may lose a partition, and has to look for that."""
    body = fetcher.body({0: (OFFSET, 0), 1: (OFFSET, 0)}, wait_us=20 * SECOND_US)
    await fetcher.client.send_only(frame(operation=2, code=FETCH, body=body, number=5), 0)
    await wait_all_tasks_blocked()
    steps = PollTaskSteps()
    trio.lowlevel.add_instrument(steps)
    for _ in range(10):
        mock_clock.jump(1)
        await wait_all_tasks_blocked()
    trio.lowlevel.remove_instrument(steps)
    assert steps.count == 0
    mock_clock.jump(20)
    assert counts(sections_of((await fetcher.client.next_frame())[256:])) == [
        (0, 0, 0, 0),
        (1, 0, 0, 0),
    ]


async def test_a_waiting_member_notices_that_a_partition_is_another_members(
    broker, fetcher, open_client, mock_clock
):
    client = fetcher.client
    assert (await client.perform(139, STREAM + TOPIC + b"\x03grp"))[0] == 0
    assert await client.perform(JOIN, STREAM + TOPIC + GROUP[1:]) == (0, bytes(4))
    starts = {0: (NEXT, 0), 1: (NEXT, 0), 2: (NEXT, 0)}
    body = fetcher.body(starts, wait_us=20 * SECOND_US, consumer=GROUP)
    await client.send_only(frame(operation=2, code=FETCH, body=body, number=5), 0)
    await wait_all_tasks_blocked()
    other = await client_w(open_client)
    assert await other.perform(JOIN, STREAM + TOPIC + GROUP[1:]) == (0, bytes(4))
    mock_clock.jump(2)
    await wait_all_tasks_blocked()
    assert load("iggy").states[broker].waiting_polls.count == 0
    sections = sections_of((await client.next_frame())[256:])
    assert ErrorCode.GROUP_PARTITION_NOT_OWNED in [section[1] for section, _ in sections]


async def test_a_look_of_a_waiting_fetch_compares_only_the_ends(fetcher, open_client):
    """A record wakes all fetches that wait for its partition."""
    starts = {0: (OFFSET, 0), 1: (OFFSET, 0), 2: (OFFSET, 0)}
    body = fetcher.body(starts, wait_us=30 * SECOND_US, min_count=100)
    for number in range(FETCHES):
        await fetcher.client.send_only(frame(operation=2, code=FETCH, body=body, number=number), 0)
    await wait_all_tasks_blocked()
    other = FetchingClient(await client_w(open_client), fetcher.incarnations)
    await other.send(0, b"a")
    profiler = cProfile.Profile()
    with profiler:
        await other.send(0, b"b")
        await wait_all_tasks_blocked()
    calls = {entry.code: entry.callcount for entry in profiler.getstats()}
    assert calls.get(until_records.__code__, 0) >= FETCHES  # The record woke all fetches.
    assert calls.get(target.__code__, 0) == 0


async def test_a_stop_ends_the_wait_of_a_fetch(broker, fetcher):
    body = fetcher.body({0: (OFFSET, 0)}, wait_us=30 * SECOND_US)
    await fetcher.client.send_only(frame(operation=2, code=FETCH, body=body, number=5), 0)
    await wait_all_tasks_blocked()
    broker.stop()
    await wait_all_tasks_blocked()
    assert load("iggy").states[broker].waiting_polls.count == 0


async def test_a_fetch_ends_at_its_time_or_when_cancelled(fetcher):
    starts = {0: (OFFSET, 0), 1: (OFFSET, 0)}
    began = trio.current_time()
    assert counts(await fetcher.fetch(starts, wait_us=SECOND_US // 20)) == [
        (0, 0, 0, 0),
        (1, 0, 0, 0),
    ]
    assert trio.current_time() - began >= 0.05
    body = fetcher.body(starts, wait_us=30 * SECOND_US)
    await fetcher.client.send_only(frame(operation=2, code=FETCH, body=body, number=5), 0)
    await fetcher.client.send_only(frame(operation=2, code=CANCEL, number=5), 0)
    await fetcher.client.send_only(frame(operation=2, code=PING, number=6), 0)
    assert struct.unpack_from("<Q", await fetcher.client.next_frame(), 200) == (6,)


@pytest.mark.parametrize(
    "options",
    [
        {"min_count": 0},
        {"min_count": 101},
        {"bytes_max": 343},
        {"own_bytes_max": (1 << 20) + 1},
        {"wait_us": 601 * SECOND_US},
        {"wait_us": SECOND_US, "timeout_us": SECOND_US},
    ],
)
async def test_limits_of_a_fetch_are_checked(fetcher, options):
    assert await fetcher.fetch({0: (OFFSET, 0)}, **options) is ErrorCode.INVALID_COMMAND


async def test_only_an_offset_or_the_next_message_begins_a_fetch(fetcher):
    assert await fetcher.fetch({0: (FIRST, 0)}) is ErrorCode.INVALID_COMMAND
    assert await fetcher.fetch({}) is ErrorCode.INVALID_COMMAND
    double = fetcher.body({0: (OFFSET, 0)}) + fetcher.body({0: (OFFSET, 0)})[-33:]
    double = double.replace(struct.pack("<BI", 0, 1), struct.pack("<BI", 0, 2), 1)
    assert (await fetcher.client.query(FETCH, double))[0] == ErrorCode.INVALID_COMMAND


async def test_a_fetch_needs_the_right_to_consume(broker, fetcher):
    rules = Nothing()
    broker.access = Access(rules)
    assert await fetcher.fetch({0: (OFFSET, 0)}) is ErrorCode.UNAUTHORIZED
