"""SIGTERM and SIGINT under load: clients are told, the exit code is 0, nothing that was
acknowledged is lost.
"""

import random
import signal
import time

import pytest

from conformance.crash.check import faults, read_back
from conformance.crash.writers import IggyWriter, KafkaWriter, Ledger, PulsarWriter
from conformance.raw.iggy import IggyWire
from conformance.raw.pulsar import RECEIPT, PulsarWire, field_of, parse
from conformance.server import STOP_TIMEOUT_S, RunningBroker

CLOSE_PRODUCER, CLOSE_CONSUMER = 15, 16
TOPIC = "stopped-under-load"


class ToldPulsarWriter(PulsarWriter):
    """Notes whether its producer was closed by the broker, with a word."""

    was_told = False

    def take_answer(self, wire, count):
        kind, fields, _ = wire.take_command()
        if kind == CLOSE_PRODUCER:
            self.was_told = True
            raise ConnectionError("closed by the broker")
        assert kind == RECEIPT
        return field_of(parse(field_of(fields, 3)), 2)


WRITERS = {"kafka": KafkaWriter, "pulsar": ToldPulsarWriter, "iggy": IggyWriter}


def address(broker, door):
    host, _, port = broker.addresses[door].rpartition(":")
    return host, int(port)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_under_load_tells_the_clients_and_loses_nothing_acknowledged(number):
    chance = random.Random(int(number))
    ledgers = {door: Ledger(door) for door in WRITERS}
    with RunningBroker() as broker:
        with IggyWire(address(broker, "iggy")) as wire:
            wire.create_topic(TOPIC)
        writers = {
            door: kind(address(broker, door), TOPIC, ledgers[door], chance.randrange(1 << 32))
            for door, kind in WRITERS.items()
        }
        with PulsarWire(address(broker, "pulsar")) as idle:
            idle.subscribe(TOPIC, "idle", permits=1)
            for writer in writers.values():
                writer.start()
            deadline = time.monotonic() + STOP_TIMEOUT_S
            while not all(len(ledger.stored_somewhere) > 50 for ledger in ledgers.values()):
                assert time.monotonic() < deadline, "the writers do not get on"
                time.sleep(0.01)
            idle.next_message()
            broker.process.send_signal(number)
            idle.expect(CLOSE_CONSUMER)
            assert idle.is_closed()
        for writer in writers.values():
            writer.join(STOP_TIMEOUT_S)
        assert broker.process.wait(STOP_TIMEOUT_S) == 0
        assert [writer.fault for writer in writers.values()] == [None] * len(writers)
        assert writers["pulsar"].was_told
        broker.start()
        log = read_back(address(broker, "kafka"), TOPIC, 0)
    assert faults(log, list(ledgers.values())) == []
