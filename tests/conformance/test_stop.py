"""SIGTERM and SIGINT under load: the broker notifies clients, the exit code is 0, and no
acknowledged record is lost.
"""

import contextlib
import random
import signal

import pytest

from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.pulsar import RECEIPT, PulsarWire, field_of, parse
from conformance.crash.check import faults, read_back
from conformance.crash.writers import IggyWriter, KafkaWriter, PulsarWriter, WriterState
from conformance.server import STOP_TIMEOUT_S, RunningBroker
from tests.waiting import until_seen

CLOSE_PRODUCER, CLOSE_CONSUMER = 15, 16
TOPIC = "stopped-under-load"


class ToldPulsarWriter(PulsarWriter):
    """Notes that the broker closed the producer with a command."""

    was_told = False

    def send(self, wire, values):
        with contextlib.suppress(ConnectionError):  # Earlier frames are still unread.
            super().send(wire, values)

    def take_answer(self, wire, count):
        kind, fields, _ = wire.take_command()
        if kind == CLOSE_PRODUCER:
            self.was_told = True
            raise ConnectionError("closed by the broker")
        assert kind == RECEIPT
        return field_of(parse(field_of(fields, 3)), 2)


WRITERS = {"kafka": KafkaWriter, "pulsar": ToldPulsarWriter, "iggy": IggyWriter}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_under_load_notifies_clients_and_loses_no_acknowledged_record(number):
    chance = random.Random(int(number))
    ledgers = {listener: WriterState(listener) for listener in WRITERS}
    with RunningBroker() as broker:
        with IggyWire(broker.address("iggy")) as wire:
            wire.create_topic(TOPIC)
        writers = {
            listener: kind(
                broker.address(listener), TOPIC, ledgers[listener], chance.randrange(1 << 32)
            )
            for listener, kind in WRITERS.items()
        }
        with PulsarWire(broker.address("pulsar")) as idle:
            idle.subscribe(TOPIC, "idle", permits=1)
            for writer in writers.values():
                writer.start()
            until_seen(
                lambda: all(len(ledger.stored_somewhere) > 50 for ledger in ledgers.values())
            )
            idle.next_message()
            broker.signal(number)
            idle.expect(CLOSE_CONSUMER)
            assert idle.is_closed()
        for writer in writers.values():
            writer.join(STOP_TIMEOUT_S)
        assert broker.wait() == 0
        assert [writer.fault for writer in writers.values()] == [None] * len(writers)
        assert writers["pulsar"].was_told
        broker.start()
        log = read_back(broker.address("kafka"), TOPIC, 0)
    assert faults(log, list(ledgers.values())) == []
