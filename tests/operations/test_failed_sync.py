"""A permanent failure of a sync or write: the broker stops with a single line and an exit code, has
given no false answer, and the next start finds all acknowledged records.
"""

import contextlib
import threading

import pytest

from conformance.clients.raw.kafka import message
from tests.operations.clients import OK, Listeners
from tests.operations.kit import SwitchedBroker, kafka
from tests.waiting import HANG_S

TOPIC = "t"
ALL_OK = {"kafka": OK, "pulsar": OK, "iggy": OK}
EXIT_FAILED = 1
WRITERS = 4


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["no-sync", "no-write"])
def test_the_broker_stops_and_has_given_no_false_answer(tmp_path, fault):
    with SwitchedBroker(tmp_path / "broker") as broker:
        listeners = Listeners(broker, TOPIC)
        listeners.kafka.create(TOPIC)
        listeners.open_producer()
        for _ in range(5):
            assert listeners.write() == ALL_OK
        assert set(listeners.commit(7).values()) == {OK}
        acknowledged = write_until_it_ends(broker, lambda: broker.break_disk(fault))
        assert broker.wait() == EXIT_FAILED
        (line,) = [line for line in broker.log().splitlines() if "braidlog:" in line]
        assert line.startswith("braidlog: storage failed, stopped at once: cannot ")
        assert line.endswith(": Input/output error")
        assert "Traceback" not in broker.log()
        broker.control.unlink()
        listeners.close()
        broker.start()
        listeners.connect()
        listeners.acknowledged |= acknowledged
        listeners.check()
        assert listeners.kafka.committed("kafka-group", TOPIC) == 7
        listeners.close()


def write_until_it_ends(broker, break_disk):
    """Write by Kafka until the broker has ended; return the acknowledged values."""
    acknowledged = {}
    started = threading.Barrier(WRITERS + 1)

    def write(name):
        with contextlib.suppress(OSError), kafka(broker) as wire:
            for number in range(1_000_000):
                value = b"%d %d" % (name, number)
                error, offset = wire.produce(TOPIC, message(None, value))
                if error:
                    return
                acknowledged[offset] = value
                if number == 20:
                    started.wait(HANG_S)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(WRITERS)]
    for thread in threads:
        thread.start()
    started.wait(HANG_S)
    break_disk()
    for thread in threads:
        thread.join(HANG_S)
        assert not thread.is_alive()
    assert len(acknowledged) > 20 * WRITERS
    return acknowledged


@pytest.mark.slow
def test_a_failed_sync_during_a_stop_is_reported(tmp_path):
    with SwitchedBroker(tmp_path / "broker") as broker:
        with kafka(broker) as wire:
            wire.create(TOPIC)
            assert wire.produce(TOPIC, message(None, b"x")) == (0, 0)
        broker.break_disk("no-sync")
        assert broker.stop() == EXIT_FAILED
        assert "braidlog: storage failed" in broker.log()
        assert "Traceback" not in broker.log()
