"""Shared state of a Kafka connection's handlers."""

from types import SimpleNamespace
from typing import Any

import pytest

from braidlog.protocols.kafka import context as contexts
from braidlog.protocols.kafka.context import KafkaContext
from braidlog.protocols.kafka.names import name_space
from tests.protocols.kafka.frames import Client, fetch
from tests.protocols.kafka.talk import OpenClient


def partition(number: int) -> Any:
    return SimpleNamespace(partition_id=number)


def test_only_the_latest_fruitless_walks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "WALKED_MAX", 2)
    parts: Any = [None] * 8
    context = KafkaContext(*parts)
    for number in (1, 2, 1, 3):
        context.note_walked(partition(number), number, 10 * number)
    assert context.walked == {1: (1, 10), 3: (3, 30)}


async def test_all_connections_share_their_names(open_client: OpenClient) -> None:
    name_space.cache_clear()
    known = name_space("public/default")
    for name in (b"one", b"two"):
        client = Client(await open_client("kafka"))
        await client.call(fetch(name, {0: (0, 100)}))
    assert set(known._known) == {b"one", b"two"}
