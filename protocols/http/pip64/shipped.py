"""The answer of produce in Apache Pulsar's shipped form, under `/topics/persistent/...`.

Such requests differ only in field names, which `messages.py` accepts everywhere. Knows no log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from braidlog.protocols.http.pip64.messages import ShippedAnswer, ShippedResult

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.http.pip64.produce import Placed

NO_VERSION = -1


def answer(topic: Topic, version: int | None, placed: Sequence[Placed]) -> ShippedAnswer:
    """Return the answer of Apache's broker (TopicsBase.java); its results all have version 0."""
    shown_version = NO_VERSION if version is None else version
    return ShippedAnswer([_result(topic, message) for message in placed], shown_version)


def _result(topic: Topic, placed: Placed) -> ShippedResult:
    if placed.error is not None:
        return ShippedResult(None, str(placed.error), errorCode=placed.error_code, schemaVersion=0)
    index = placed.partition if topic.partitioned else -1
    return ShippedResult(f"{placed.ledger}:{placed.offset}:{index}", None, 0, 0)
