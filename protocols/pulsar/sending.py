"""SEND: a producer's run in a receive becomes a stored batch, with receipts in order.

"Command Send" in Apache Pulsar's binary protocol document. Entries are stored exactly as they came,
from their magic (or metadata size) on; only their metadata is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from braidlog.broker.delivery.non_persistent.channel import NON_PERSISTENT_ID, NonPersistentChannel
from braidlog.broker.errors import BrokerError, NotOwner, StorageFull, TopicNotFound
from braidlog.broker.reading.entries import Entry
from braidlog.broker.runtime.endings import ProtocolError
from braidlog.broker.topics.client_limits import EncryptionRequired
from braidlog.protocols.pulsar import messages
from braidlog.protocols.pulsar.errors import refusal
from braidlog.protocols.pulsar.machine import FRAME_BYTES_MAX
from braidlog.protocols.pulsar.messages import NO_SEQUENCE
from braidlog.protocols.pulsar.runs import REPEATED, SendRun
from braidlog.storage.errors import CorruptBody
from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.pulsar.entry import read_metadata
from braidlog.storage.formats.pulsar.entry_runs import entries as stored_entries
from braidlog.storage.formats.pulsar.entry_runs import parse_send
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import CommandSend, ServerError
from braidlog.storage.formats.pulsar.prepare import (
    BODY_FORMAT,
    JOINED_ENTRY_BYTES,
    write_at_once,
)
from braidlog.storage.formats.quick import SPEEDUPS

if TYPE_CHECKING:
    from braidlog.broker.delivery.open_producers import Producer
    from braidlog.broker.topics.client_limits import ClientLimits
    from braidlog.protocols.pulsar.client import PulsarClient

# Java and Go drop a message on NotAllowedError. C++ (Python, Node) would resend it for ever, and
# drops a message only on ChecksumError.
NOT_ALLOWED_CLIENTS: Final = ("Pulsar-Java", "Pulsar-Go")

# After these the client sends the message again, after later messages that it has sent meanwhile.
RESENT: Final = (StorageFull, NotOwner)

MARKER: Final = int(BatchFlag.MARKER)  # Operators of a flag class cost a microsecond.


class Sending:
    """The sends of a connection that are not stored yet; none outlives its receive."""

    def __init__(self, client: PulsarClient) -> None:
        self._client = client
        self._runs: dict[int, SendRun] = {}
        self._receipts = messages.ReceiptWriter()
        self._once = write_at_once()
        self.pause_s = 0.0  # Wait for the publish rate.

    def take(self, received: memoryview, frames_max: int) -> tuple[int, int]:
        """Take the complete SENDs at the front; returns the (bytes, frames) taken.

        Their payloads must not change until `flush`. Raises ProtocolError.
        """
        size = self._store_single(received)
        if size:
            return size, 1
        next_send, add = self._client.machine.next_send, self.add
        pos = frames = 0
        while frames < frames_max:  # hot: see make bench
            if SPEEDUPS is not None:
                size, count = self._take_plain(received[pos:], frames_max - frames)
                pos, frames = pos + size, frames + count
                if frames == frames_max or pos == len(received):
                    break
            next_command = next_send(received, pos)
            if next_command is None:
                break
            command, payload_pos, pos = next_command
            add(command, received[payload_pos:pos])
            frames += 1
        return pos, frames

    def _store_single(self, received: memoryview) -> int:  # hot: see make bench
        """Store the ordinary SEND that is all of the received bytes, with little work; its receipt
        leaves once it is on disk. Return its size, or 0 for all else, with nothing done.
        """
        client, once = self._client, self._once
        if once is None or SPEEDUPS is None or self._runs or not client.machine.is_connected:
            return 0
        send = SPEEDUPS.single_send(received, FRAME_BYTES_MAX - 4, JOINED_ENTRY_BYTES)
        producer = None if send is None else client.producers.get(send[0])
        if producer is None or not (producer.is_ready and producer.partition.is_persistent):
            return 0
        limits = producer.topic.client_limits
        if producer.last_sequence is not None or limits.checks_messages or limits.publish:
            return 0
        producer_id, sequence_id, entry_pos = send
        number = producer.number
        once.append_us = client.broker.now_us()
        once.producer = (number, messages.signed(producer.epoch) if number else 0, sequence_id)
        partition, entry = producer.partition.stored(), received[entry_pos:]
        try:
            appended = partition.append_at_once(entry, once)
        except BrokerError:  # `flush` meets the same error, and answers it.
            return 0
        if appended is None:
            return 0
        base_offset, count, ticket = appended
        client.broker.metrics.records_in(
            client.connection.protocol,
            partition.metrics_name,
            count,
            once.prefix_bytes + len(entry),
            partition.traffic,
        )
        receipt = SPEEDUPS.pulsar_receipt(
            producer_id, sequence_id, partition.partition_id, base_offset, NO_SEQUENCE
        )
        client.outbox.answer([receipt], ticket)
        return len(received)

    def _take_plain(self, received: memoryview, frames_max: int) -> tuple[int, int]:
        """Take ordinary SENDs of a producer, all in a single call."""
        if SPEEDUPS is None or not self._client.machine.is_connected:
            return 0, 0
        limits = (FRAME_BYTES_MAX - 4, JOINED_ENTRY_BYTES)
        producer_id = SPEEDUPS.send_producer(received, *limits)
        if producer_id is None:
            return 0, 0
        run = self._runs.get(producer_id) or self._begin(producer_id)
        if run is None or run.is_checked:  # Closed, or each SEND needs a check.
            return 0, 0
        size, *sends = SPEEDUPS.cut_sends(
            received, frames_max, *limits, producer_id, run.entries.info.record_count, NO_SEQUENCE
        )
        run.extend(*sends)
        return size, len(sends[0])

    def add(self, command: CommandSend, payload: memoryview) -> None:  # hot: see make bench
        """Take a SEND; its payload must not change until `flush`. Raises ProtocolError."""
        run = self._runs.get(command.producer_id) or self._begin(command.producer_id)
        if run is None or run.is_over:
            return
        try:
            send = parse_send(payload)
        except CorruptBody as error:
            if has_wrong_checksum(payload):  # Java sends the message again.
                run.is_over = run.accepted is not None
                code, text = ServerError.ChecksumError, "Checksum failed on the broker"
            else:
                code, text = self._drop_code(), str(error)
            self._refuse(run, command, code, text)
            return
        if run.limits.checks_messages:
            refused = self._forbidden(run.limits, payload)
            if refused is not None:
                self._refuse(run, command, *refused)
                return
        # These belong to transactions, replication and shadow topics: no client sends them here.
        is_ordinary = not (command.HasField("txnid_most_bits") or command.HasField("message_id"))
        if is_ordinary and not send.flags & MARKER:
            run.add(command, payload, send)
        else:
            self._refuse(run, command, ServerError.NotAllowedError, "Not an ordinary message")

    def _begin(self, producer_id: int) -> SendRun | None:
        """A run of that producer; None if we closed it and its sends are to be dropped."""
        producer = self._client.producers.get(producer_id)
        if producer is None or not producer.is_ready:
            if self._client.was_closed(producer_id):
                return None
            raise ProtocolError(f"SEND of producer {producer_id}, which is not open")
        run = self._runs[producer_id] = SendRun(producer)
        return run

    def flush(self) -> None:
        """Store the sends and queue their receipts, which leave once the batch is on disk."""
        if self._runs:
            runs, self._runs = self._runs, {}
            for run in runs.values():
                self._store(run)

    def _store(self, run: SendRun) -> None:
        client, producer = self._client, run.producer
        if not producer.partition.is_persistent:
            self._publish(run)
            return
        base_offset, ticket = 0, 0
        if run.has_repeats:  # Answered once the first copy is on disk.
            ticket = producer.partition.appended_ticket
        if run.entries.pieces:
            body, size = run.entries.prepare(len(run.sent))
            info = run.entries.info
            info.producer_id = producer.number
            info.producer_epoch = messages.signed(producer.epoch) if producer.number else 0
            try:
                appended = producer.partition.stored().append(
                    body,
                    info,
                    body_format=BODY_FORMAT,
                    append_us=client.broker.now_us(),
                )
            except TopicNotFound:
                client.close_producer(producer)  # The client then looks up the topic again.
                return
            except BrokerError as error:
                self._refuse_all(run, error)
                run.is_over |= run.accepted is not None and isinstance(error, RESENT)
            else:
                base_offset, ticket = appended.base_offset, max(ticket, appended.ticket)
                producer.last_sequence = run.accepted
                client.broker.metrics.records_in(
                    client.connection.protocol,
                    producer.partition.metrics_name,
                    info.record_count,
                    size,
                    producer.partition.stored().traffic,
                )
            self._count_published(producer, info.record_count, size)
        ledger = producer.partition.partition_id
        client.outbox.answer([b"".join(self._answers(run, ledger, base_offset))], ticket)
        if run.is_over:
            client.close_producer(producer)

    def _publish(self, run: SendRun) -> None:
        """Answer at once, as Apache does, and deliver the messages; nothing is stored."""
        client, producer, topic = self._client, run.producer, run.producer.partition
        assert isinstance(topic, NonPersistentChannel), "the other implementation of Channel stores"
        if topic.deleted:
            client.close_producer(producer)
            return
        body = memoryview(b"".join(run.entries.pieces))  # The receive buffer is used again.
        sent = [
            Entry(NON_PERSISTENT_ID, ref.record_count, body[ref.start : ref.end], 0)
            for ref in stored_entries(body, NON_PERSISTENT_ID)
        ]
        run.sent = [
            (number, highest, NON_PERSISTENT_ID, why) for number, highest, _, why in run.sent
        ]
        client.outbox.answer([b"".join(self._answers(run, NON_PERSISTENT_ID, NON_PERSISTENT_ID))])
        records = run.entries.info.record_count
        protocol = client.connection.protocol
        client.broker.metrics.records_in(protocol, topic.full, records, len(body))
        topic.publish(sent, records, len(body))
        self._count_published(run.producer, records, len(body))

    def _count_published(self, producer: Producer, records: int, size: int) -> None:
        """Count records for the topic's publish rate: the client is read again once the rate
        allows more.
        """
        policies = self._client.broker.client_policies
        pause_s = policies.publish_pause_s(producer.topic, producer.partition, records, size)
        self.pause_s = max(self.pause_s, pause_s)

    def take_pause(self) -> float:
        """Return the seconds to wait before the client's next command, and forget them."""
        pause_s, self.pause_s = self.pause_s, 0.0
        return pause_s

    def _answers(self, run: SendRun, ledger: int, base_offset: int) -> list[bytes]:
        """A receipt or an error for each SEND, in their order."""
        producer_id = run.producer.producer_id
        self._receipts.begin(producer_id, ledger)
        write = self._receipts.write
        if run.has_repeats:
            return [
                messages.send_error(producer_id, sequence_id, *refused)
                if refused is not None
                else messages.repeat_receipt(producer_id, sequence_id, highest)
                if delta == REPEATED
                else write(sequence_id, base_offset + delta, highest)
                for sequence_id, highest, delta, refused in run.sent
            ]
        return [
            write(sequence_id, base_offset + delta, highest)
            if refused is None
            else messages.send_error(producer_id, sequence_id, *refused)
            for sequence_id, highest, delta, refused in run.sent
        ]

    def _refuse(self, run: SendRun, command: CommandSend, code: ServerError, text: str) -> None:
        self._client.count_refused(code)
        run.sent.append((command.sequence_id, 0, 0, (code, text)))

    def _refuse_all(self, run: SendRun, error: BrokerError) -> None:
        refused = refusal(error)
        why = (refused.code, refused.text)
        self._client.count_refused(refused.code, sum(not sent[3] for sent in run.sent))
        run.sent = [
            (sequence_id, highest, delta, earlier or why)
            for sequence_id, highest, delta, earlier in run.sent
        ]

    def _forbidden(
        self, limits: ClientLimits, payload: memoryview
    ) -> tuple[ServerError, str] | None:
        """Return the error for a message that the topic's settings forbid."""
        metadata, _ = read_metadata(payload, check=False)
        delay_ms = metadata.deliver_at_time - self._client.broker.now_us() // 1000
        is_encrypted = bool(metadata.encryption_keys)
        try:
            limits.check_message(len(payload), delay_ms, is_encrypted=is_encrypted)
        except EncryptionRequired as error:
            return refusal(error).code, str(error)
        except BrokerError as error:
            return self._drop_code(), str(error)
        return None

    def _drop_code(self) -> ServerError:
        """Return the error on which the client drops the message, and goes on."""
        if self._client.version_text.startswith(NOT_ALLOWED_CLIENTS):
            return ServerError.NotAllowedError
        return ServerError.ChecksumError


def has_wrong_checksum(payload: memoryview) -> bool:
    """Return True if a SEND has a checksum that does not match its message."""
    is_checked = bytes(payload[:2]) == b"\x0e\x01" and len(payload) >= messages.CHECKSUM_BYTES
    return is_checked and crc32c(payload[6:]) != int.from_bytes(payload[2:6], "big")
