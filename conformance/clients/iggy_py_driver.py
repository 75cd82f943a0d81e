"""iggy-py 0.4.0: text payloads only, no keys or headers; the library always polls as consumer 1."""

import asyncio
import time
from typing import Any

from iggy_py import IggyClient, PollingStrategy, SendMessage

from conformance.clients.base import READ_TIMEOUT_S, ClientMessage, Timeout

STREAM = "default"
SEND_BATCH = 1000
EMPTY_POLL_PAUSE_S = 0.01  # The library has no long poll.
CONSUMER_ID = "1"  # Fixed in the library; a Kafka or Pulsar group of this name shares its position.


class IggyPy:
    """Stream `default` is the namespace of Kafka's and Pulsar's short names."""

    def __init__(self, address: str) -> None:
        self.address = address

    def produce(
        self, topic: str, messages: list[ClientMessage], compression: str | None = None
    ) -> None:
        """Send in batches, each to a single partition."""
        if compression:
            raise ValueError("iggy-py does not compress")
        asyncio.run(self._produce(topic, messages))

    def read(self, topic: str, count: int) -> list[ClientMessage]:
        """Poll by offset, without storing a position."""
        return asyncio.run(self._read(topic, count, None))

    def read_as_group(self, topic: str, group: str, count: int) -> list[ClientMessage]:
        """Poll NEXT with auto commit. The library can only be consumer 1."""
        if group != CONSUMER_ID:
            raise ValueError(f"iggy-py polls as consumer {CONSUMER_ID} only, not as {group!r}")
        return asyncio.run(self._read(topic, count, PollingStrategy.Next()))

    async def _connect(self) -> Any:
        client = IggyClient(self.address)
        await client.connect()
        await client.login_user("iggy", "iggy")
        return client

    async def _produce(self, topic: str, messages: list[ClientMessage]) -> None:
        client = await self._connect()
        if await client.get_stream(STREAM) is None:
            await client.create_stream(STREAM)
        if await client.get_topic(STREAM, topic) is None:
            await client.create_topic(STREAM, topic, 1)
        for start in range(0, len(messages), SEND_BATCH):
            batch = messages[start : start + SEND_BATCH]
            payloads = [SendMessage((item.value or b"").decode()) for item in batch]
            await client.send_messages(STREAM, topic, batch[0].partition + 1, payloads)

    async def _read(self, topic: str, count: int, strategy: Any) -> list[ClientMessage]:
        client = await self._connect()
        messages: list[ClientMessage] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        while len(messages) < count:
            wanted = min(SEND_BATCH, count - len(messages))
            step = strategy or PollingStrategy.Offset(
                len(messages) and (messages[-1].offset or 0) + 1
            )
            polled = await client.poll_messages(
                STREAM, topic, 1, step, wanted, strategy is not None
            )
            messages += [ClientMessage(item.payload(), offset=item.offset()) for item in polled]
            if not polled:
                if time.monotonic() > deadline:
                    raise Timeout(f"{len(messages)} of {count} messages in {READ_TIMEOUT_S:.0f} s")
                await asyncio.sleep(EMPTY_POLL_PAUSE_S)
        return messages


DRIVER = IggyPy
