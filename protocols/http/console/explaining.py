"""Reasons why a reader does or does not receive the record of an offset.

The rules are those of docs/mapping.md and docs/positions.md. Knows no request and no page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from braidlog.protocols.http.console.shown_messages import ReadMessage, offset_of, origin_of
from braidlog.protocols.http.management.messages import (
    GroupDetail,
    GroupPosition,
    PartitionInfo,
    TopicDetail,
)
from braidlog.storage.metadata.names import TopicName, kafka_legal

# Readers by the name in the address, and their protocols as the stored formats name them.
READERS = {
    "kafka": "Kafka",
    "pulsar": "Pulsar",
    "iggy": "Iggy",
    "iggy-classic": "Iggy",
    "http": "HTTP",
}
READER_TITLES = {
    "kafka": "Kafka",
    "pulsar": "Pulsar",
    "iggy": "Iggy, crates 0.7 and later",
    "iggy-classic": "Iggy, crates 0.0.60 to 0.6",
    "http": "HTTP",
}
DELAYING_TYPES = ("Shared", "Key_Shared")  # Subscriptions that hold a record until it is due.


class Effect(StrEnum):
    """The effect of a reason on the reader."""

    HIDDEN = "hidden"
    WAITS = "waits"
    CHANGED = "changed"
    SEEN = "seen"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Text of a reason, and its effect on the reader."""

    effect: Effect
    text: str


@dataclass(slots=True)
class Question:
    """A record, a reader, and the facts that decide. Without a group, the question is about any
    reader of the protocol.

    `message` is the first message that a read from the offset on returns, None if there is none.
    `unreadable` is the error of that read. `may_consume` is None if nobody asked about a user.
    """

    topic: TopicDetail
    bounds: PartitionInfo
    offset: int
    reader: str
    now_us: int
    message: ReadMessage | None = None
    unreadable: str = ""
    group_name: str = ""
    group: GroupDetail | None = None
    group_type: str | None = None
    user: str = ""
    may_consume: bool | None = None
    is_enforced: bool = False  # The broker checks rights.


def explain(question: Question) -> list[Explanation]:
    """Return the reasons, the first obstacle first; a single reason `seen` if nothing hides the
    record.
    """
    reasons = [*_of_the_topic(question), *_of_the_log(question)]
    if not any(reason.effect is Effect.HIDDEN for reason in reasons):
        reasons += _of_the_record(question)
        reasons += _of_the_group(question)
    if all(reason.effect is Effect.CHANGED for reason in reasons):
        text = f"Nothing hides the record: a {READERS[question.reader]} reader receives it"
        reasons.append(Explanation(Effect.SEEN, f"{text} at offset {question.offset}."))
    return reasons


def _of_the_topic(question: Question) -> Iterator[Explanation]:
    """Yield the obstacles of the topic's name and the reader's rights."""
    name = TopicName(*question.topic.name.split("/"))
    protocol = READERS[question.reader]
    if question.may_consume is False:
        text = f"{question.user} has no right to consume: `braidlog permissions grant` gives it"
        if question.is_enforced:
            yield Explanation(Effect.HIDDEN, f"{text}.")
        else:
            yield Explanation(Effect.CHANGED, f"{text}. The broker does not check rights.")
    if protocol == "Kafka" and not kafka_legal(name.topic):
        yield Explanation(
            Effect.HIDDEN,
            "Kafka's clients refuse the topic's name, so Kafka listeners do not list the topic.",
        )
    namespace = f"{name.tenant}/{name.namespace}"
    if protocol == "Kafka" and namespace != "public/default":
        yield Explanation(
            Effect.CHANGED,
            f"A Kafka listener serves a single namespace, by default public/default. The topic is"
            f" in {namespace}: the reader needs a listener of that namespace.",
        )
    if protocol == "Iggy" and name.tenant != "public":
        yield Explanation(
            Effect.HIDDEN,
            f"Iggy's streams are the namespaces of the tenant public. The tenant is {name.tenant}.",
        )


def _of_the_log(question: Question) -> Iterator[Explanation]:
    """Yield the obstacles of the offset: below, above, or without a record of its own."""
    bounds, offset = question.bounds, question.offset
    if offset >= bounds.log_end_offset:
        text = f"No record has offset {offset} yet: the next record gets {bounds.log_end_offset}."
        yield Explanation(Effect.HIDDEN, text)
    elif offset >= bounds.high_watermark:
        yield Explanation(
            Effect.WAITS,
            "The record is not durable yet. Readers receive it once it is on disk, after"
            " milliseconds.",
        )
    elif offset < bounds.log_start_offset:
        start = bounds.log_start_offset
        yield Explanation(
            Effect.HIDDEN,
            f"The record was deleted, by retention or a purge: the log starts at {start}. A Kafka"
            " reader with this position gets OFFSET_OUT_OF_RANGE and resets by its own setting;"
            f" readers of Pulsar, Iggy and HTTP continue with {start}.",
        )
    elif question.unreadable:
        yield from _unreadable(question)
    elif question.message is None or offset_of(question.message) != offset:
        following = question.message
        after = "" if following is None else f" The next message has offset {offset_of(following)}."
        yield Explanation(
            Effect.HIDDEN,
            "The offset has no message of its own: compaction removed it, a repair left a gap, it"
            " is an earlier chunk of a chunked Pulsar message (the message has the offset of its"
            f" last chunk), or `unreadable_records = skip` skips it.{after}",
        )


def _unreadable(question: Question) -> Iterator[Explanation]:
    setting = question.topic.in_force.get("unreadable_records")
    effects = {
        "skip": (Effect.HIDDEN, "skip the stored entry"),
        "raw": (Effect.CHANGED, "receive the stored entry as one raw value"),
    }
    effect, text = effects.get(
        str(setting), (Effect.HIDDEN, "get an error at this offset, and no later record")
    )
    yield Explanation(
        effect,
        f"The broker cannot open the record ({question.unreadable}). Readers of the protocol that"
        f" stored it receive it unchanged; by `unreadable_records = {setting}` others {text}.",
    )


def _of_the_record(question: Question) -> Iterator[Explanation]:
    """Yield the effects of the record's contents."""
    message = question.message
    if message is None or question.unreadable:
        return
    if READERS[question.reader] == "Iggy" and origin_of(message) != "Iggy":
        is_absent, is_empty = message.value is None, message.value == ""
        if is_absent or (is_empty and question.reader == "iggy-classic"):
            yield _uncarried(question, "no value" if is_absent else "an empty value")
    due_us = message.deliver_at_us
    if due_us is not None and due_us > question.now_us:
        seconds = (due_us - question.now_us) / 1_000_000
        holds = READERS[question.reader] in ("Pulsar", "HTTP")
        is_held = holds and question.group_type in (None, *DELAYING_TYPES)
        yield Explanation(
            Effect.WAITS if is_held else Effect.CHANGED,
            f"The record is delayed for {seconds:.0f} s more. Consumers of Shared and Key_Shared"
            " subscriptions receive it then; all other readers receive it at once.",
        )


def _uncarried(question: Question, value: str) -> Explanation:
    setting = question.topic.in_force.get("uncarried_records")
    text = f"The record has {value}, which the reader's dialect cannot carry. By"
    if setting == "mark":
        return Explanation(
            Effect.CHANGED,
            f"{text} `uncarried_records = mark` the reader gets a zero byte, and the header"
            " braidlog.value.",
        )
    return Explanation(
        Effect.HIDDEN,
        f"{text} `uncarried_records = {setting}` the reader does not see it; it counts in"
        " braidlog_records_left_out_total.",
    )


def _of_the_group(question: Question) -> Iterator[Explanation]:
    """Yield the effects of the group's position and members."""
    name, group = question.group_name, question.group
    if not name:
        return
    if group is None:
        yield Explanation(
            Effect.CHANGED,
            f"Group {name} has no position on this topic: a new reader starts where its client"
            " says (Kafka's auto.offset.reset, Pulsar's initial position, Iggy's strategy).",
        )
        return
    place = next(
        (each for each in group.partitions if each.partition == question.bounds.partition), None
    )
    if place is not None:
        yield from _of_the_position(question, place)
    if not group.members:
        yield Explanation(Effect.WAITS, f"No client reads in group {name} now.")
        return
    readers = [each for each in group.members if question.bounds.partition in each.partitions]
    if not readers:
        yield Explanation(
            Effect.WAITS,
            f"No member of group {name} reads partition {question.bounds.partition} now.",
        )
    for member in readers[:1]:
        text = f"{member.protocol} member {member.name} at {member.address} reads the partition now"
        yield Explanation(Effect.CHANGED, f"{text}: other members do not receive its records.")


def _of_the_position(question: Question, place: GroupPosition) -> Iterator[Explanation]:
    name, offset = question.group_name, question.offset
    if place.position is None:
        yield Explanation(
            Effect.CHANGED,
            f"Group {name} has no position in this partition: a reader starts where its client"
            " says.",
        )
    elif offset < place.position:
        yield Explanation(
            Effect.HIDDEN,
            f"Group {name} has acknowledged the record: its next offset is {place.position}."
            " A reset moves the group back.",
        )
    elif any(first <= offset <= last for first, last in place.acknowledged):
        yield Explanation(
            Effect.HIDDEN,
            f"Group {name} has acknowledged the record on its own, above its position"
            f" {place.position}.",
        )
    elif offset > place.position:
        waiting = offset - place.position
        text = f"Group {name} has {waiting} offsets before the record: its next is {place.position}"
        more = place.acknowledged_ranges - len(place.acknowledged)
        unsure = f", or has acknowledged it in one of {more} further ranges" if more > 0 else ""
        yield Explanation(Effect.WAITS, f"{text}{unsure}.")
