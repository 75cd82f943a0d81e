"""Acknowledgements of a share group's members: which records, and what happens to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from braidlog.broker.delivery.pulling import AckRange, AckType
from braidlog.protocols.kafka.errors import Code, CodeRefused

if TYPE_CHECKING:
    from braidlog.protocols.kafka.assignors import Place
    from braidlog.protocols.kafka.context import KafkaContext
    from braidlog.protocols.kafka.share_sessions import ShareSession


class AckBatch(Protocol):
    """Offsets, the last included, with a kind for all of them or for each."""

    @property
    def first_offset(self) -> int:
        """The first offset."""

    @property
    def last_offset(self) -> int:
        """The last offset, included."""

    @property
    def acknowledge_types(self) -> Sequence[int]:
        """A `AckType` for all offsets or for each."""


class InvalidAck(CodeRefused):
    """Acknowledgements were refused with this code."""


def read_acks(batches: Sequence[AckBatch], *, is_renewing: bool) -> list[AckRange]:
    """Return the ranges of a partition's acknowledgements. Raises InvalidAck."""
    acks: list[AckRange] = []
    end = -1
    for batch in batches:
        first, last, kinds = batch.first_offset, batch.last_offset, batch.acknowledge_types
        _check(batch, end, is_renewing=is_renewing)
        end = last
        if len(kinds) == 1:
            acks.append((first, last + 1, AckType(kinds[0])))
            continue
        start = first
        for offset, kind in enumerate(kinds, first):
            following = offset + 1
            if offset == last or kinds[following - first] != kind:
                acks.append((start, following, AckType(kind)))
                start = following
    return acks


def _check(batch: AckBatch, end: int, *, is_renewing: bool) -> None:
    first, last, kinds = batch.first_offset, batch.last_offset, batch.acknowledge_types
    most = AckType.RENEW if is_renewing else AckType.REJECT
    refusals = (
        (first > last, f"The first offset {first} is greater than the last offset {last}."),
        (
            first <= end,
            f"The first offset {first} is not above the end of the former batch, {end}.",
        ),
        (not kinds, "The acknowledge types are missing."),
        (
            len(kinds) > 1 and len(kinds) != last - first + 1,
            f"There are {len(kinds)} acknowledge types for {last - first + 1} records.",
        ),
        (
            any(not AckType.GAP <= kind <= most for kind in kinds),
            f"The acknowledge types are not all from {AckType.GAP} to {most}.",
        ),
    )
    for is_wrong, reason in refusals:
        if is_wrong:
            raise InvalidAck(Code.INVALID_REQUEST, reason)


def acknowledge_ranges(
    context: KafkaContext, session: ShareSession, place: Place, acks: Sequence[AckRange]
) -> int:
    """Acknowledge records of a partition; return the ticket. Raises InvalidAck, BrokerError."""
    consumer = session.consumers.get(place)
    partition = context.partition_with_id(*place)
    context.check_group(session.key[0], partition.topic.name)
    if consumer is None or consumer.dispatcher is None or consumer.partition is not partition:
        raise InvalidAck(Code.INVALID_RECORD_STATE)
    if consumer.dispatcher.are_ahead(acks):
        raise InvalidAck(Code.INVALID_REQUEST, "Some of these records were not given out yet.")
    if not consumer.dispatcher.holds(consumer, acks):
        raise InvalidAck(
            Code.INVALID_RECORD_STATE, "The member does not hold all of these records."
        )
    return consumer.dispatcher.acknowledge_ranges(consumer, acks)
