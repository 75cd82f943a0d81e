"""Collects the SENDs of a producer in a receive into a batch to store.

Knows which of them were stored before if the topic has deduplication ("Deduplication" in Apache
Pulsar's documentation), and nothing of the log. "Command Send" in the binary protocol document.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from braidlog.broker.topics.client_limits import ClientLimits
from braidlog.protocols.pulsar.messages import NO_SEQUENCE, signed
from braidlog.storage.formats.pulsar.entry_runs import SendInfo
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import CommandSend, ServerError
from braidlog.storage.formats.pulsar.prepare import EntryRun

if TYPE_CHECKING:
    from braidlog.broker.delivery.open_producers import Producer

SEQUENCE_MIN: Final = -(2**63)
REPEATED: Final = -1  # Instead of a delta: the message was stored before, and is not stored again.

# One SEND of a run: its sequence id, its highest sequence id, its delta (how many records of the
# run come before its own), why it is refused. A plain tuple: there is one for every message.
Sent = tuple[int, int, int, tuple[ServerError, str] | None]


@dataclass(slots=True)
class SendRun:
    """Sends of a producer, to be stored together."""

    producer: Producer
    sent: list[Sent] = field(default_factory=list)
    entries: EntryRun = field(default_factory=EntryRun)
    accepted: int | None = (
        None  # Highest sequence stored, this run included; None: no deduplication.
    )
    has_repeats: bool = False
    is_over: bool = False
    """With deduplication, the client will send a refused message again: a later message must not be
    stored first. Otherwise the refused message would count as a repeat then: acknowledged, but not
    stored."""

    limits: ClientLimits = field(init=False)
    is_checked: bool = False  # Each SEND needs a check, of its sequence or by the topic's limits.

    def __post_init__(self) -> None:
        self.accepted = self.producer.last_sequence
        self.limits = self.producer.topic.client_limits
        self.is_checked = self.accepted is not None or self.limits.checks_messages

    def add(
        self, command: CommandSend, payload: memoryview, send: SendInfo
    ) -> None:  # hot: see make bench
        """Append an entry, unless it is known to be stored already."""
        sequence_id = command.sequence_id
        last, highest = signed(sequence_id), NO_SEQUENCE
        first = last
        if command.HasField("highest_sequence_id"):
            highest = command.highest_sequence_id
            last = max(last, signed(highest))
        elif send.chunk is not None:
            if send.chunk.chunk_id == send.chunk.chunk_count - 1:
                highest = 0  # Apache answers the last piece of a chunked message with this.
            else:
                # The message is not complete yet: it must be accepted again after a crash.
                last = max(last - 1, SEQUENCE_MIN)
        if self.accepted is not None:
            if first <= self.accepted:
                self._repeat(sequence_id, highest)
                return
            self.accepted = max(self.accepted, last)
        entries = self.entries
        self.sent.append((sequence_id, highest, entries.info.record_count, None))
        entries.add(payload, send, first, last)

    def _repeat(self, sequence_id: int, highest: int) -> None:
        self.has_repeats = True
        self.sent.append((sequence_id, highest, REPEATED, None))

    def extend(self, sent: list[Sent], entries: bytes, first_ms: int, latest_ms: int) -> None:
        """Append ordinary entries of a record each, with their prefixes and without a check for
        repeats. `first_ms` and `latest_ms` are their first and latest publish time, -1 for none.
        """
        if sent:
            sequences = signed(sent[0][0]), signed(sent[-1][0])
            self.entries.extend(entries, len(sent), sequences, (first_ms, latest_ms))
            self.sent += sent
