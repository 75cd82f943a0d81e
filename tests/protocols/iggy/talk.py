"""Raw conversation with the Iggy listener, for tests that need the exact bytes."""

import struct
from collections.abc import Callable

import trio

from tests.protocols.frame_stream import FrameStream
from tests.protocols.iggy import description
from tests.protocols.iggy.description import named
from tests.waiting import HANG_S, PAUSE_S

NEVER = (1 << 64) - 1
OK = bytes(8)


def answer_size(data: bytes) -> int | None:
    """Return the whole size of an answer: a status, a length, the payload."""
    return 8 + struct.unpack_from("<I", data, 4)[0] if len(data) >= 8 else None


class Talk(FrameStream):
    """A connection of a test."""

    def __init__(self, stream: trio.SocketStream) -> None:
        super().__init__(stream, answer_size)

    async def exchange(self, request: bytes) -> bytes | None:
        """Return the whole answer to a frame; None if the connection was closed instead."""
        await self.stream.send_all(request)
        return await self.answer()

    async def answer(self) -> bytes | None:
        """Return the next whole answer, without bytes behind; None if the connection was closed."""
        data = await self.frame()
        assert not self.has_more, "bytes behind the answer"
        return data

    async def ask(self, code: int, **values: object) -> dict:
        """Return status and values of the answer to a command of dialect D2."""
        answer = await self.exchange(description.request(code, **values))
        assert answer is not None, "connection was closed"
        return description.answer(code, answer)

    async def ask_until(self, is_so: Callable[[dict], bool], code: int, **values: object) -> dict:
        """Return the first answer that fulfils the condition."""
        with trio.fail_after(HANG_S):
            while not is_so(answer := await self.ask(code, **values)):
                await trio.sleep(PAUSE_S)
        return answer

    async def ask_raw_until(self, request: bytes, is_so: Callable[[bytes], bool]) -> bytes:
        """Return the first whole answer to a frame that fulfils the condition."""
        with trio.fail_after(HANG_S):
            while not is_so(answer := await self.exchange(request) or b""):
                await trio.sleep(PAUSE_S)
        return answer

    async def status(self, code: int, **values: object) -> int:
        """Return only the status of the answer."""
        return (await self.ask(code, **values))["status"]

    async def login(self, version: str = "0.6.202", password: str = "iggy") -> int:
        """Return the status of a login."""
        return await self.status(
            38, username="iggy", password=password, version=version, context=""
        )

    async def create_topic(self, topic: str = "tp", partitions: int = 1, **more: int) -> dict:
        """Create a topic, and stream `st` if missing."""
        await self.ask(202, stream_id=0, name="st")
        values = {
            "topic_id": 0,
            "compression": 1,
            "expiry": NEVER,
            "max_size": 0,
            "replication": 0,
            **more,
        }
        return await self.ask(302, stream=named("st"), partitions=partitions, name=topic, **values)

    async def send(
        self, *payloads: bytes, topic: str | int = "tp", partitioning: dict | None = None
    ) -> int:
        """Return the status of a SEND, to partition 1 by default."""
        messages = [{"id": bytes(16), "headers": [], "payload": payload} for payload in payloads]
        return await self.status(
            101,
            stream=named("st"),
            topic=named(topic),
            partitioning=partitioning or to_partition(1),
            messages=messages,
        )

    async def poll(
        self,
        kind: int,
        value: int = 0,
        *,
        count: int = 1000,
        commit: bool = False,
        partition: int = 1,
        topic: str | int = "tp",
        consumer: dict | None = None,
    ) -> dict:
        """Return the answer to a POLL, by consumer 1 by default."""
        return await self.ask(
            100,
            consumer=consumer or {"kind": 1, "id": named(1)},
            stream=named("st"),
            topic=named(topic),
            partition=partition,
            strategy={"kind": kind, "value": value},
            count=count,
            auto_commit=commit,
        )

    async def payloads(self, kind: int, value: int = 0, **more: object) -> list[bytes]:
        """Return the payloads of a POLL."""
        answer = await self.poll(kind, value, **more)
        assert answer["status"] == 0
        assert answer["messages_count"] == len(answer["messages"])
        return [message["payload"] for message in answer["messages"]]

    async def stored(self, partition: int = 1, consumer: dict | None = None) -> int | None:
        """Return the stored offset of a consumer, by default 1."""
        answer = await self.ask(
            120,
            consumer=consumer or {"kind": 1, "id": named(1)},
            stream=named("st"),
            topic=named("tp"),
            partition=partition,
        )
        assert answer["status"] == 0
        return answer.get("stored_offset")


OFFSET, TIMESTAMP, FIRST, LAST, NEXT = 1, 2, 3, 4, 5
BALANCED = {"kind": 1, "value": b""}
GRP = {"kind": 2, "id": named("grp")}


def to_partition(number: int) -> dict:
    """Return a partitioning by number, from 1."""
    return {"kind": 2, "value": struct.pack("<I", number)}
