"""Deduplication of WebSocket producers: the answers that Apache Pulsar 4.2.4 gave."""

import base64
import json
from contextlib import AbstractContextManager, nullcontext

import pytest

from braidlog.protocols.http.websocket.sequences import ProducerSequences
from conformance.clients.raw.websocket import Closed
from tests.broker.records import FullOnce
from tests.protocols.http.conftest import listener
from tests.protocols.http.websocket.test_socket import (
    HELLO,
    ORDERS,
    PRODUCER,
    counted,
    dial,
    exchange,
    received,
)

__all__ = ["counted", "dial", "listener"]
REPEATED = bytes.fromhex("08 ffffffffffffffffff01 10 ffffffffffffffffff01")
AGAIN = f"{PRODUCER}?producerName=till&initialSequenceId=-1"


async def ids(dial, broker, *targets, deduplication=True):
    """Send a message by each producer, one after the other; return the ids."""
    await broker.topics.create(ORDERS, 1)
    await broker.topics.alter_settings(ORDERS, {"deduplication": deduplication})
    message_ids = []
    for target in targets:
        producer = await dial(target)
        answer = await exchange(producer, HELLO)
        assert answer["result"] == "ok"
        message_ids.append(base64.b64decode(answer["messageId"]))
        producer.close()
    return message_ids


def stored(broker):
    return [partition.next_offset for partition in broker.topics.get(ORDERS).partitions]


async def test_a_repeated_message_is_answered_and_not_stored(dial, broker):
    first, repeated = await ids(dial, broker, AGAIN, AGAIN)
    assert repeated == REPEATED != first
    assert stored(broker) == [1]


async def test_a_producer_of_the_same_name_continues(dial, broker):
    named = f"{PRODUCER}?producerName=till"
    message_ids = await ids(dial, broker, named, named, AGAIN.replace("=-1", "=1"), AGAIN)
    assert message_ids[3] == REPEATED and REPEATED not in message_ids[:3]
    assert stored(broker) == [3]


async def test_producers_without_a_name_repeat_nothing(dial, broker):
    unnamed = f"{PRODUCER}?initialSequenceId=0"
    assert REPEATED not in await ids(dial, broker, unnamed, unnamed)
    assert stored(broker) == [2]


async def test_without_deduplication_everything_is_stored(dial, broker):
    assert REPEATED not in await ids(dial, broker, AGAIN, AGAIN, deduplication=False)
    assert stored(broker) == [2]


async def test_each_partition_has_its_own_sequences(dial, broker):
    await broker.topics.create(ORDERS, 2, partitioned=True)
    await broker.topics.alter_settings(ORDERS, {"deduplication": True})
    shown = []
    for key in "aba":  # JavaStringHash: 97 and 98.
        producer = await dial(AGAIN)
        answer = await exchange(producer, json.dumps({"payload": "aGk=", "key": key}))
        shown.append(base64.b64decode(answer["messageId"]))
        producer.close()
    assert stored(broker) == [1, 1]
    assert shown[2] == REPEATED + b"\x18\x01" and REPEATED not in (shown[0][:22], shown[1][:22])


@pytest.mark.parametrize("deduplication", [True, False])
async def test_a_message_behind_the_last_sequence_is_refused(dial, broker, deduplication):
    await broker.topics.create(ORDERS, 1)
    await broker.topics.alter_settings(ORDERS, {"deduplication": deduplication})
    producer = await dial(f"{PRODUCER}?producerName=till&initialSequenceId={2**63 - 2}")
    assert (await exchange(producer, HELLO))["result"] == "ok"
    for _ in range(2):
        refused = await exchange(producer, HELLO)
        assert "the producer has used its last sequence id" in refused["errorMsg"]
    assert stored(broker) == [1]


async def test_the_number_of_a_name_is_released_once(broker):
    topic = await broker.topics.create(ORDERS, 1)
    await broker.topics.alter_settings(ORDERS, {"deduplication": True})
    sequences = ProducerSequences(broker, topic, b"till", None)
    await sequences.open(topic.partitions[0])
    sequences.close()
    sequences.close()
    with pytest.raises(KeyError):
        broker.producers.release(b"till", topic)


@pytest.mark.parametrize("fails", ["full disk", "deletion that fails"])
async def test_a_message_that_was_refused_is_stored_when_a_client_sends_it_again(
    dial, broker, fails
):
    """The connection ends after the refusal: a later message would be stored with a later number,
    and the client, beginning again behind its last stored message, would take this for a repeat.
    """
    topic = await broker.topics.create(ORDERS, 1)
    await broker.topics.alter_settings(ORDERS, {"deduplication": True})
    producer = await dial(f"{PRODUCER}?producerName=till&initialSequenceId=-1")
    assert (await exchange(producer, HELLO))["result"] == "ok"
    for _ in range(2):
        producer.send(HELLO)
    partition = topic.partitions[0]
    refusing: AbstractContextManager[object] = nullcontext()
    if fails == "full disk":
        partition.log = FullOnce(partition.log)
    else:
        refusing = topic.without_appends()
    with refusing:
        answers = [json.loads(await received(producer))]
    with pytest.raises(Closed):
        while True:
            answers.append(json.loads(await received(producer)))
    assert {answer["result"] for answer in answers} == {"send-error:8"}
    assert stored(broker) == [1]
    producer = await dial(f"{PRODUCER}?producerName=till&initialSequenceId=0")
    for _ in range(2):
        answer = await exchange(producer, HELLO)
        assert base64.b64decode(answer["messageId"]) != REPEATED
    assert stored(broker) == [3]
