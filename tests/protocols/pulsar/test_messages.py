"""Answers to bytes: as recorded from Apache's broker, and from a stub that clients accepted."""

import random
import struct

import pytest

from braidlog.protocols.pulsar import messages
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import BaseCommand, Schema, ServerError
from tests.protocols.pulsar.golden import answered, by_stub, sent, taken_apart

ALL_ONES = 2**64 - 1


def message_text(name):
    command, _ = taken_apart(answered(name))
    return command.error.message


def receipt(producer_id, sequence_id, ledger, entry, highest_sequence_id):
    writer = messages.ReceiptWriter()
    writer.begin(producer_id, ledger)
    return writer.write(sequence_id, entry, highest_sequence_id)


def message(name, *, entry, count=0, ack_set=(), epoch=None, consumer=0, ledger=489, partition=-1):
    """Return the frame of a recorded MESSAGE, from its payload and this broker's head."""
    _, body = taken_apart(answered(name))
    writer = messages.MessageWriter(consumer, ledger, partition)
    if epoch is not None:
        writer.set_epoch(epoch)
    return writer.head(entry, count, ack_set, len(body)) + body


def recorded_schema():
    command, _ = taken_apart(answered("get_schema_response"))
    return command.getSchemaResponse.schema


APACHE = {
    "connected": lambda: messages.connected(
        "Pulsar Server4.2.4",
        21,
        5242880,
        supports_topic_watchers=True,
        supports_get_partitioned_metadata_without_auto_creation=True,
        supports_repl_dedup_by_lid_and_eid=True,
        supports_topic_watcher_reconcile=True,
    ),
    "pong": lambda: messages.PONG,
    "partitioned_metadata_response": lambda: messages.partitions(7, 0),
    "partitioned_metadata_response_3": lambda: messages.partitions(8, 3),
    "partitioned_metadata_response_missing": lambda: messages.partitions_failed(
        9, ServerError.TopicNotFound, ""
    ),
    "partitioned_metadata_response_no_namespace": lambda: messages.partitions_failed(
        10, ServerError.TopicNotFound, "Namespace not found"
    ),
    # The recorded broker reports that its clients come through a proxy (field 8).
    "lookup_response": lambda: messages.lookup(12, "pulsar://127.0.0.1:6650").replace(
        b"\x40\x00", b"\x40\x01"
    ),
    "lookup_response_no_namespace": lambda: messages.lookup_failed(
        13, ServerError.TopicNotFound, "Namespace not found"
    ),
    "producer_success_unnamed": lambda: messages.producer_success(14, "standalone-0-533"),
    "producer_success_named": lambda: messages.producer_success(15, "prod-1"),
    "error_producer_busy": lambda: messages.error(
        16, ServerError.ProducerBusy, message_text("error_producer_busy")
    ),
    "send_receipt": lambda: receipt(0, 0, 489, 0, messages.NO_SEQUENCE),
    "send_receipt_batch": lambda: receipt(0, 1, 489, 1, 3),
    "send_receipt_duplicate": lambda: receipt(8, 0, -1, -1, messages.NO_SEQUENCE),
    "send_error_checksum": lambda: messages.send_error(
        0, 4, ServerError.ChecksumError, "Checksum failed on the broker"
    ),
    "success": lambda: messages.success(17),
    "error_consumer_busy": lambda: messages.error(
        20, ServerError.ConsumerBusy, "Exclusive consumer is already connected"
    ),
    "message_plain": lambda: message("message_plain", entry=0),
    "message_batch": lambda: message("message_batch", entry=1),
    "ack_response": lambda: messages.ack_response(0, 22),
    "message_redelivered": lambda: message("message_redelivered", entry=0, count=1),
    "message_redelivered_ack_set": lambda: message(
        "message_redelivered_ack_set", entry=1, count=1, ack_set=[5]
    ),
    "message_consumer_epoch_0": lambda: message(
        "message_consumer_epoch_0", entry=0, epoch=0, consumer=4
    ),
    "message_protocol_10": lambda: message("message_protocol_10", entry=0),
    "message_partition_1": lambda: message(
        "message_partition_1", entry=0, consumer=7, ledger=491, partition=1
    ),
    "get_last_message_id_response_batch": lambda: messages.last_message_id(
        23, messages.message_id(489, 1, -1, 2), messages.message_id(489, -1)
    ),
    "get_last_message_id_response_empty": lambda: messages.last_message_id(
        25, messages.message_id(-1, -1, -1, -1), messages.message_id(490, -1)
    ),
    "get_last_message_id_response_partition": lambda: messages.last_message_id(
        27, messages.message_id(491, 0, 1, -1), messages.message_id(491, -1)
    ),
    "error_consumer_not_found": lambda: messages.error(
        28, ServerError.MetadataError, "Consumer not found"
    ),
    "close_consumer_seek": lambda: messages.close_consumer(6),
    "close_producer_terminate": lambda: messages.close_producer(0),
    "active_consumer_change_true": lambda: messages.active_consumer_change(1, is_active=True),
    "producer_success_exclusive": lambda: messages.producer_success(30, "x", topic_epoch=0),
    "producer_success_waiting": lambda: messages.producer_success(33, "w", ready=False),
    "producer_success_waited": lambda: messages.producer_success(33, "w", topic_epoch=1),
    "watch_topic_list_success": lambda: messages.watch_topic_list_success(
        37, 1, ["persistent://public/gold-ns/a"], "f0e5f75f"
    ),
    "watch_topic_update": lambda: messages.watch_topic_update(
        1, ["persistent://public/gold-ns/b"], [], "207dd40c"
    ),
    "get_topics_of_namespace_response": lambda: messages.topics_of_namespace(
        35, ["persistent://public/gold-ns/a"], "f0e5f75f", filtered=False, changed=True
    ),
    "get_topics_of_namespace_response_filtered_unchanged": lambda: messages.topics_of_namespace(
        36, [], "f0e5f75f", filtered=True, changed=False
    ),
    "producer_success_schema": lambda: messages.producer_success(40, "s", schema_version=bytes(8)),
    "get_schema_response": lambda: messages.schema(41, recorded_schema(), bytes(8)),
    "get_or_create_schema_response": lambda: messages.schema_version(42, bytes(8)),
    "error_transactions": lambda: messages.error(
        44, ServerError.NotAllowedError, "Transactions are not enabled."
    ),
    "error_unsubscribe": lambda: messages.error(
        47,
        ServerError.MetadataError,
        "Unconnected or shared consumer attempting to unsubscribe",
    ),
}


@pytest.mark.parametrize("name", APACHE)
def test_an_answer_has_apaches_bytes(name):
    assert APACHE[name]().hex() == answered(name).hex()


STUB = {
    "partitioned_metadata_response": lambda: messages.partitions(1, 0),
    "producer_success": lambda: messages.producer_success(0, "prod-1"),
    "send_receipt": lambda: receipt(0, 0, 7, 0, 0),
    "success": lambda: messages.success(3),
    "close_consumer_from_broker": lambda: messages.close_consumer(0),
    "active_consumer_change": lambda: messages.active_consumer_change(2, is_active=True),
    "ping_from_broker": lambda: messages.PING,
}


@pytest.mark.parametrize("name", STUB)
def test_an_answer_has_the_bytes_that_the_client_accepted(name):
    # The stub's frame has a request id; this broker's never has.
    if name == "close_consumer_from_broker":
        command, _ = taken_apart(sent(name))
        ours, _ = taken_apart(STUB[name]())
        assert command.close_consumer.consumer_id == ours.close_consumer.consumer_id
        return
    assert name in by_stub()
    assert STUB[name]().hex() == sent(name).hex()


def test_writers_keep_nothing_from_one_frame_to_the_next():
    writer = messages.MessageWriter(0, 489, -1)
    plain = writer.head(0, 0, (), 10)
    writer.head(1, 3, (5, -2), 10)
    assert writer.head(0, 0, (), 10) == plain


@pytest.mark.parametrize("seed", range(10))
def test_heads_equal_those_of_a_fresh_writer(seed):
    rng = random.Random(seed)
    writer, epoch, entry = messages.MessageWriter(3, 489, 0), None, rng.choice([0, 100, 2**34])
    for _ in range(300):
        if rng.random() < 0.05:
            entry = rng.getrandbits(rng.randint(1, 62))
        if rng.random() < 0.02:
            epoch = rng.randint(0, 300)
            writer.set_epoch(epoch)
        rare = (rng.randint(0, 2), rng.choice([(), (5, -2)])) if rng.random() < 0.1 else (0, ())
        body_bytes = rng.randint(0, 300)
        command = BaseCommand(type=BaseCommand.MESSAGE)
        message = command.message
        message.consumer_id = 3
        message.message_id.CopyFrom(messages.message_id(489, entry, 0))
        if rare[0]:
            message.redelivery_count = rare[0]
        message.ack_set.extend(rare[1])
        if epoch is not None:
            message.consumer_epoch = epoch
        packed = command.SerializeToString()
        sizes = struct.pack(">II", 4 + len(packed) + body_bytes, len(packed))
        assert writer.head(entry, *rare, body_bytes) == sizes + packed, f"seed {seed}"
        entry += 1


def test_head_counts_the_body_in():
    _, body = taken_apart(answered("message_plain"))
    head = messages.MessageWriter(0, 489, -1).head(0, 0, (), len(body))
    assert len(head) + len(body) == int.from_bytes(head[:4], "big") + 4


def test_the_checksum_is_left_out_for_clients_without_checksums():
    _, body = taken_apart(answered("message_plain"))
    assert messages.without_checksum(body) == body[6:]
    assert messages.without_checksum(body[6:]) == body[6:]


@pytest.mark.parametrize(("wire", "meant"), [(0, 0), (ALL_ONES, -1), (2**63 - 1, 2**63 - 1)])
def test_ids_are_signed_numbers_in_unsigned_fields(wire, meant):
    assert messages.signed(wire) == meant
    assert messages.unsigned(meant) == wire


def test_refused_acks_and_schemas_have_the_reason():
    command, _ = taken_apart(messages.ack_response(1, 2, (ServerError.NotAllowedError, "no")))
    assert (command.ackResponse.error, command.ackResponse.message) == (22, "no")
    command, _ = taken_apart(messages.schema_failed(3, ServerError.TopicNotFound, "none"))
    assert command.getSchemaResponse.error_code == 11
    command, _ = taken_apart(
        messages.schema_version_failed(3, ServerError.IncompatibleSchema, "other")
    )
    assert command.getOrCreateSchemaResponse.error_code == 18
    assert Schema.Type.Name(4) == "Avro"
