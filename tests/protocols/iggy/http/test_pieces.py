"""Large answers of the HTTP API in pieces: a turn of the loop makes a single one."""

import base64
import random

import pytest
import trio

from braidlog.protocols.iggy.http.json_messages import PAYLOAD_PART_BYTES
from braidlog.protocols.iggy.http.pieces import PIECE_BYTES, AnswerTurns, gathered
from tests.protocols.iggy.http.conftest import prepare

MESSAGES = "/streams/st/topics/tp/messages"
TO_PARTITION_0 = {"kind": "partition_id", "value": base64.b64encode(bytes(4)).decode()}


async def send(client, *payloads: bytes) -> None:
    messages = [{"payload": base64.b64encode(payload).decode()} for payload in payloads]
    body = {"partitioning": TO_PARTITION_0, "messages": messages}
    assert (await client.ask("POST", MESSAGES, body))[0] == 201


async def test_a_turn_makes_a_piece_of_one_answer():
    """Else every client would wait for as many pieces as clients ask for large answers."""
    turns, count = AnswerTurns(piece_bytes=10), 12
    further = 0  # pieces behind the first of their answers
    most, is_over = 0, False

    def parts():
        nonlocal further
        yield bytes(10)
        for _ in range(20):
            further += 1
            yield bytes(10)

    async def look() -> None:
        nonlocal most
        while not is_over:
            before = further
            await trio.lowlevel.checkpoint()
            most = max(most, further - before)

    async def answer() -> None:
        assert len(await turns.joined(parts())) == 21

    async with trio.open_nursery() as watching:
        watching.start_soon(look)
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(answer)
        is_over = True
    assert further == 20 * count
    assert most <= 2  # The look may be the first task of a turn, and the last of the next.


async def test_a_turn_begins_a_single_read():
    turns, begun, most = AnswerTurns(), 0, 0

    async def read() -> None:
        nonlocal begun
        await turns.wait()
        begun += 1

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(read)
        while begun < 20:
            before = begun
            await trio.lowlevel.checkpoint()
            most = max(most, begun - before)
    assert most <= 2  # As above.


class TurnsWithCount(AnswerTurns):
    """Counts the reads that wait for their turn."""

    reads = 0

    async def wait(self) -> None:
        self.reads += 1
        await super().wait()


async def test_a_poll_waits_for_its_turn_before_it_reads(make_client):
    turns = TurnsWithCount()
    client = make_client(turns=turns)
    await prepare(client)
    await send(client, b"v")
    assert turns.reads == 0
    assert (await client.ask("GET", f"{MESSAGES}?count=1"))[1]["count"] == 1
    assert turns.reads == 1


async def test_a_small_answer_does_not_wait_behind_large_answers():
    turns, ended = AnswerTurns(piece_bytes=10), []

    async def answer(name: str, size: int) -> None:
        await turns.joined(bytes(10) for _ in range(size))
        ended.append(name)

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(answer, "large", 50)
        await trio.lowlevel.checkpoint()
        nursery.start_soon(answer, "small", 1)
    assert ended[0] == "small"


async def test_a_cancelled_answer_does_not_hold_up_the_others():
    turns = AnswerTurns(piece_bytes=1)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(turns.joined, (b"x" for _ in range(1000)))
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert await turns.joined([b"a", b"b"]) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("parts", "pieces"),
    [
        ([], []),
        ([b""], [b""]),
        ([b"a", b"b", b"c"], [b"ab", b"c"]),
        ([b"abcdef", b"g"], [b"abcdef", b"g"]),
        ([b"ab"], [b"ab"]),
    ],
)
async def test_parts_are_joined_to_pieces(parts, pieces):
    assert list(gathered(parts, 2)) == pieces
    assert await AnswerTurns(2).joined(parts) == (pieces or [b""])


async def test_a_poll_leaves_in_pieces(client):
    payloads = [random.randbytes(size) for size in (3000, 1, 2, *[4000] * 100)]
    await send(client, *payloads)
    _, polled = await client.ask("GET", f"{MESSAGES}?count=200")
    received = [base64.b64decode(message["payload"]) for message in polled["messages"]]
    assert received == payloads
    sizes = client.piece_bytes
    assert len(sizes) > 5 and max(sizes) < PIECE_BYTES + 6000


@pytest.mark.parametrize("more", [-1, 0, 1, 2, 3, 12 * PAYLOAD_PART_BYTES + 5])
async def test_a_large_message_leaves_in_pieces(client, more):
    payload = random.randbytes(PAYLOAD_PART_BYTES + more)
    await send(client, b"before", payload, b"after")
    _, polled = await client.ask("GET", f"{MESSAGES}?count=200")
    received = [base64.b64decode(message["payload"]) for message in polled["messages"]]
    assert received == [b"before", payload, b"after"]
    assert [message["header"]["payload_length"] for message in polled["messages"]] == [
        *(6, len(payload), 5)
    ]
    assert max(client.piece_bytes) <= PIECE_BYTES + PAYLOAD_PART_BYTES * 4 // 3 + 1000


async def test_a_long_list_leaves_in_pieces(client):
    for number in range(4):
        topic = {"name": f"{'n' * 240}{number}", "partitions_count": 1}
        assert (await client.ask("POST", "/streams/st/topics", topic))[0] == 200
    client.app._turns = AnswerTurns(piece_bytes=500)
    status, topics = await client.ask("GET", "/streams/st/topics")
    assert status == 200 and [topic["name"][-2:] for topic in topics] == [
        *("tp", "n0", "n1", "n2", "n3")
    ]
    assert len(client.piece_bytes) >= 3
    _, stream = await client.ask("GET", "/streams/st")
    assert stream["topics"] == topics and stream["topics_count"] == 5
    assert len(client.piece_bytes) >= 3
