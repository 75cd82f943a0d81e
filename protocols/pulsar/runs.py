"""Collects the SENDs of one producer in one receive into one batch to store.

Knows which of them were stored before if the topic has deduplication ("Deduplication" in Apache
Pulsar's documentation), and nothing of the log. "Command Send" in the binary protocol document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from braidlog.protocols.pulsar.messages import NO_SEQUENCE, signed
from braidlog.storage.formats.api import BodyInfo, Buffer
from braidlog.storage.formats.pulsar.entry_runs import ENTRY_PREFIX, SendInfo
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import CommandSend, ServerError

if TYPE_CHECKING:
    from braidlog.protocols.pulsar.registry import Producer

# Entries of this size or less are copied together before they are written: a thousand pieces cost
# more than their bytes.
JOINED_ENTRY_BYTES: Final = 4096
US_PER_MS: Final = 1000
SEQUENCE_MIN: Final = -(2**63)
REPEATED: Final = -1  # Instead of a delta: the message was stored before, and is not stored again.

# One SEND of a run: its sequence id, its highest sequence id, its delta (how many records of the
# run come before its own), why it is refused. A plain tuple: there is one for every message.
Sent = tuple[int, int, int, tuple[ServerError, str] | None]


@dataclass(slots=True)
class Run:
    """Sends of one producer, to be stored together."""

    producer: Producer
    sent: list[Sent] = field(default_factory=list)
    parts: list[Buffer] = field(default_factory=list)
    info: BodyInfo = field(default_factory=lambda: BodyInfo(0))
    accepted: int | None = (
        None  # Highest sequence stored, this run included; None: no deduplication.
    )
    has_repeats: bool = False

    def __post_init__(self) -> None:
        self.accepted = self.producer.last_sequence

    def add(
        self, command: CommandSend, payload: memoryview, send: SendInfo
    ) -> None:  # hot: see make bench
        """Append one entry, unless it is known to be stored already."""
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
        delta = self.info.record_count
        self.sent.append((sequence_id, highest, delta, None))
        self.parts += (ENTRY_PREFIX.pack(len(payload), delta, send.record_count), payload)
        self._count(first, last, send.record_count, send)

    def _repeat(self, sequence_id: int, highest: int) -> None:
        self.has_repeats = True
        self.sent.append((sequence_id, highest, REPEATED, None))

    def extend(self, sent: list[Sent], entries: bytes, first_ms: int, latest_ms: int) -> None:
        """Append ordinary entries of one record each, with their prefixes and without a check for
        repeats. `first_ms` and `latest_ms` are their first and latest publish time, -1 for none.
        """
        if not sent:
            return
        info = self.info
        latest = None if latest_ms < 0 else latest_ms * US_PER_MS
        if latest is not None and info.first_publish_us is None:
            info.first_publish_us = info.max_publish_us = first_ms * US_PER_MS
        self._count(
            signed(sent[0][0]), signed(sent[-1][0]), len(sent), SendInfo(1, latest, 0, None)
        )
        self.sent += sent
        self.parts.append(entries)

    def _count(self, first: int, last: int, records: int, send: SendInfo) -> None:
        """Add an entry's figures to those of the batch header."""
        info = self.info
        if not info.record_count:
            info.first_sequence = first
        info.last_sequence = last
        info.record_count += records
        info.flags |= send.flags
        publish_us = send.publish_us
        if publish_us is not None:
            if info.max_publish_us is None:
                info.first_publish_us = info.max_publish_us = publish_us
            elif publish_us > info.max_publish_us:
                info.max_publish_us = publish_us

    def body(self) -> tuple[Sequence[Buffer], int]:
        """The entries as one body, in parts, and its size."""
        size = sum(map(len, self.parts))
        if size <= len(self.sent) * JOINED_ENTRY_BYTES:
            return [b"".join(self.parts)], size
        return self.parts, size
