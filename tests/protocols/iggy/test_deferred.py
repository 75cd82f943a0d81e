"""Polls that wait for messages, in dialect W."""

import struct

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.waiting_polls import POLLS_MAX
from tests.broker.access.rules import AllBut
from tests.protocols.iggy.test_vsr import frame
from tests.protocols.iggy.vtalk import CREATE_STREAM, CREATE_TOPIC, STREAM, TOPIC
from tests.protocols.iggy.wtalk import SEND, client_w, sent
from tests.waiting import HANG_S, until

POLL, FETCH, CANCEL, PING = 106, 109, 108, 1
PING_NUMBER = 98
NEXT, FIRST = 5, 3
SECOND_US = 1_000_000
MIB = 1 << 20
CONSUMER = b"\x01\x01\x04\x07\0\0\0"
UNREAD = 40  # Answers of 1 MiB: more than the sockets take.


def poll_body(
    *,
    strategy: int = FIRST,
    count: int = 10,
    commit: bool = False,
    wait_us: int = 30 * SECOND_US,
    min_count: int = 1,
    bytes_max: int = 1 << 20,
    timeout_us: int = 60 * SECOND_US,
    consumer: bytes = CONSUMER,
) -> bytes:
    start = struct.pack("<BIBQIB", 1, 0, strategy, 0, count, commit)
    waits = struct.pack("<QIIQ", wait_us, min_count, bytes_max, timeout_us)
    return consumer + STREAM + TOPIC + start + waits


def messages_of(body: bytes) -> int:
    return int(struct.unpack_from("<I", body, 12)[0])


class WaitingClient:
    """A client of W with a topic, whose answers are read by their request numbers."""

    def __init__(self, client, incarnation: int) -> None:
        self.client = client
        self.incarnation = incarnation

    async def send_frame(self, number: int, code: int, body: bytes = b"") -> None:
        """Send a query, and read nothing."""
        request = frame(operation=2, code=code, body=body, number=number)
        await self.client.send_only(request, self.incarnation)

    async def answer(self) -> tuple[int, int, bytes]:
        """Return number, status and body of the next answer."""
        with trio.fail_after(HANG_S):
            data = await self.client.next_frame()
        number, status = struct.unpack_from("<Q", data, 200), struct.unpack_from("<I", data, 216)
        return int(number[0]), int(status[0]), data[256:]

    async def send(self, *payloads: bytes) -> None:
        """Append messages to partition 0."""
        request = frame(operation=SEND, body=sent(*payloads), number=99)
        await self.client.send_only(request, self.incarnation)


@pytest.fixture
async def waiting(broker, open_client) -> WaitingClient:
    client = await client_w(open_client)
    assert await client.status(CREATE_STREAM, STREAM[1:]) == 0
    assert await client.status(CREATE_TOPIC, STREAM + struct.pack("<I", 2) + TOPIC[1:]) == 0
    _, route = await client.query(105, STREAM + TOPIC + bytes(4))
    return WaitingClient(client, struct.unpack_from("<Q", route)[0])


async def test_other_commands_are_answered_while_a_poll_waits(waiting):
    await waiting.send_frame(1, POLL, poll_body())
    await waiting.send_frame(2, 1)
    assert (await waiting.answer())[:2] == (2, 0)
    await waiting.send(b"x")
    answers = {
        number: (status, body)
        for number, status, body in [await waiting.answer() for _ in range(2)]
    }
    assert set(answers) == {99, 1}
    status, body = answers[1]
    assert (status, messages_of(body)) == (0, 1)


async def test_a_poll_waits_for_as_many_messages_as_it_wants(waiting):
    await waiting.send_frame(1, POLL, poll_body(min_count=3))
    await waiting.send(b"1", b"2")
    assert (await waiting.answer())[0] == 99
    await waiting.send_frame(2, 1)
    assert (await waiting.answer())[0] == 2
    await waiting.send(b"3")
    bodies = {number: body for number, _, body in [await waiting.answer() for _ in range(2)]}
    assert messages_of(bodies[1]) == 3


async def test_a_poll_whose_time_is_over_answers_with_what_is_there(waiting):
    """Nothing was committed before: the client reads everything by the next poll."""
    await waiting.send(b"1")
    await waiting.answer()
    body = poll_body(strategy=NEXT, commit=True, min_count=5, wait_us=1, timeout_us=2 * SECOND_US)
    await waiting.send_frame(1, POLL, body)
    number, status, answer = await waiting.answer()
    assert (number, status, messages_of(answer)) == (1, 0, 1)
    await waiting.send_frame(2, POLL, poll_body(strategy=NEXT, wait_us=0))
    assert messages_of((await waiting.answer())[2]) == 0


async def test_a_cancelled_poll_is_not_answered_and_commits_nothing(waiting):
    await waiting.send_frame(1, POLL, poll_body(strategy=NEXT, commit=True))
    await waiting.send_frame(1, CANCEL)
    await waiting.send_frame(7, CANCEL)  # No such poll.
    await waiting.send(b"x")
    assert (await waiting.answer())[0] == 99
    await waiting.send_frame(2, POLL, poll_body(strategy=NEXT, wait_us=0))
    number, _, body = await waiting.answer()
    assert (number, messages_of(body)) == (2, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"wait_us": 601 * SECOND_US, "timeout_us": 630 * SECOND_US},
        {"min_count": 0},
        {"min_count": 11},
        {"timeout_us": 30 * SECOND_US},
        {"wait_us": 0, "timeout_us": 631 * SECOND_US},
        {"bytes_max": 343},
    ],
    ids=str,
)
async def test_a_poll_beyond_the_limits_is_refused(waiting, wrong):
    await waiting.send_frame(1, POLL, poll_body(**wrong))
    assert await waiting.answer() == (1, ErrorCode.INVALID_COMMAND, b"")


async def test_the_limit_of_waiting_polls_is_told_and_a_number_is_used_once(waiting):
    for number in range(1, POLLS_MAX + 1):
        await waiting.send_frame(number, POLL, poll_body())
    await waiting.send_frame(POLLS_MAX + 1, POLL, poll_body())
    assert await waiting.answer() == (POLLS_MAX + 1, 90, b"")
    await waiting.send_frame(1, CANCEL)
    await waiting.send_frame(3, POLL, poll_body())
    assert await waiting.answer() == (3, 90, b"")


async def test_a_development_build_learns_which_partitions_have_messages(open_client):
    """The captured request of apache-iggy 0.9.1.dev5, for other names."""
    client = await client_w(open_client, "0.11.1-edge.5")
    assert await client.status(CREATE_STREAM, STREAM[1:]) == 0
    assert await client.status(CREATE_TOPIC, STREAM + struct.pack("<I", 2) + TOPIC[1:]) == 0
    _, route = await client.query(105, STREAM + TOPIC + bytes(4))
    waiting = WaitingClient(client, struct.unpack_from("<Q", route)[0])
    times = struct.pack("<QQI", SECOND_US * 30, SECOND_US * 40, 2)
    targets = struct.pack("<IBQIBQ", 0, NEXT, 0, 1, NEXT, 0)
    await waiting.send_frame(1, 107, b"\x01\x01\x04\x07\0\0\0" + STREAM + TOPIC + times + targets)
    await waiting.send(b"x")
    answers = {number: body for number, _, body in [await waiting.answer() for _ in range(2)]}
    assert answers[1] == struct.pack("<II", 1, 0)


async def test_a_poll_of_a_deleted_topic_ends_with_an_error(waiting):
    await waiting.send_frame(1, POLL, poll_body())
    await waiting.send_frame(2, 1)
    await waiting.answer()
    await waiting.client.send_only(frame(operation=134, body=STREAM + TOPIC, number=3), 0)
    answers = {number: status for number, status, _ in [await waiting.answer() for _ in range(2)]}
    assert answers == {3: 0, 1: 2010}


FETCH_LIMITS = struct.pack("<QQIIIBI", 30 * SECOND_US, 60 * SECOND_US, 1, 10, MIB, 0, 1)


def fetch_body(incarnation: int) -> bytes:
    """Return the body of a fetch of partition 0 from offset 0 on."""
    place = struct.pack("<IBQIQQ", 0, 1, 0, MIB, incarnation, 0)
    return CONSUMER + STREAM + TOPIC + FETCH_LIMITS + place


@pytest.mark.parametrize("code", [POLL, FETCH])
async def test_a_waiting_poll_of_a_client_without_rights_returns_nothing(
    broker, open_client, waiting, code
):
    """The right was taken back during the wait, and then a message came."""
    writer = await client_w(open_client)
    body = poll_body() if code == POLL else fetch_body(waiting.incarnation)
    await waiting.send_frame(1, code, body)
    await wait_all_tasks_blocked()
    broker.access = Access(AllBut(Action.CONSUME))
    incarnation = waiting.incarnation
    assert (await writer.perform(SEND, sent(b"x"), incarnation=incarnation))[0] == 0
    assert await waiting.answer() == (1, ErrorCode.UNAUTHORIZED, b"")


async def test_a_client_that_reads_nothing_holds_few_answers(broker, waiting):
    """A message ends the waits of all polls, but the connection reads them in turn."""
    for number in range(1, UNREAD + 1):
        await waiting.send_frame(number, POLL, poll_body(bytes_max=1 << 30))
    await wait_all_tasks_blocked()
    await waiting.send(bytes(MIB))
    await until(lambda: broker.output.used > MIB)
    await wait_all_tasks_blocked()
    assert broker.output.used < 4 * MIB
    answered = [await waiting.answer() for _ in range(UNREAD + 1)]
    assert {number for number, status, body in answered if not status and len(body) > MIB} == set(
        range(1, UNREAD + 1)
    )


async def test_a_poll_that_waits_for_its_turn_can_be_cancelled(broker, waiting):
    """Which polls have had their turn when the client cancels all is left to chance."""
    for number in range(1, UNREAD + 1):
        await waiting.send_frame(number, POLL, poll_body(bytes_max=1 << 30))
    await wait_all_tasks_blocked()
    await waiting.send(bytes(MIB))
    await until(lambda: broker.output.used > MIB)
    for number in range(1, UNREAD + 1):
        await waiting.send_frame(number, CANCEL)
    await waiting.send_frame(PING_NUMBER, PING)
    numbers = []
    while PING_NUMBER not in numbers:
        numbers.append((await waiting.answer())[0])
    polls = set(numbers) & set(range(1, UNREAD + 1))
    assert 0 < len(polls) < UNREAD
    await until(lambda: broker.output.used < MIB)  # No cancelled poll reads afterwards.
