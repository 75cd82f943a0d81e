"""Shared state of a Kafka connection's handlers."""

from types import SimpleNamespace
from typing import Any

from braidlog.protocols.kafka.context import WALKED_MAX, KafkaContext
from braidlog.protocols.kafka.names import name_space
from tests.protocols.kafka.frames import RawKafka, fetch
from tests.protocols.kafka.talk import OpenClient


def partition(number: int) -> Any:
    return SimpleNamespace(partition_id=number)


def test_only_the_latest_fruitless_walks_are_kept() -> None:
    parts: Any = [None] * 8
    context = KafkaContext(*parts)
    for number in (0, 1, 0, *range(2, WALKED_MAX + 1)):
        context.note_walked(partition(number), number, 10 * number)
    assert len(context.walked) == WALKED_MAX
    assert 0 in context.walked and 1 not in context.walked


async def test_all_connections_share_their_names(open_client: OpenClient) -> None:
    name_space.cache_clear()
    known = name_space("public/default")
    for name in (b"one", b"two"):
        client = RawKafka(await open_client("kafka"))
        await client.call(fetch(name, {0: (0, 100)}))
    assert set(known._known) == {b"one", b"two"}
