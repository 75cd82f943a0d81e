"""What the handlers of one Kafka connection share."""

from types import SimpleNamespace
from typing import Any

import pytest

from protocols.kafka import context as contexts
from protocols.kafka.context import Context


def partition(number: int) -> Any:
    return SimpleNamespace(partition_id=number)


def test_few_fruitless_walks_are_kept_the_latest_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "WALKED_MAX", 2)
    parts: Any = [None] * 8
    context = Context(*parts)
    for number in (1, 2, 1, 3):
        context.note_walked(partition(number), number, 10 * number)
    assert context.walked == {1: (1, 10), 3: (3, 30)}
