"""Reads a topic back after a crash, through two protocols, and builds a history with the clients'
answers for the common judge of histories.
"""

from conformance.clients.raw.iggy import BY_OFFSET, IggyWire
from conformance.clients.raw.kafka import KafkaWire, parse_set
from conformance.crash.groups import GroupCommitter
from conformance.crash.writers import Address, WriterState
from conformance.history.checker import check
from conformance.history.events import EventHistory, RequestOutcome

POLL_MESSAGES = 5000

Log = dict[int, bytes]


def read_back(address: Address, topic: str, start: int) -> Log:
    """Return offset -> value of every record from `start` on, through the Kafka listener."""
    values: Log = {}
    with KafkaWire(address) as wire:
        while True:
            error, watermark, body = wire.fetch(topic, start, wait_ms=0)
            assert error == 0, f"fetch at {start}: error {error}"
            if start >= watermark:
                return values
            records = parse_set(body)
            assert records, f"nothing at {start}, watermark {watermark}"
            for offset, _, value in records:
                if offset >= start:
                    assert value is not None
                    values[offset] = value
            start = records[-1][0] + 1


def read_back_by_iggy(address: Address, topic: str) -> Log:
    """Return offset -> value of every record through the Iggy listener."""
    values: Log = {}
    with IggyWire(address) as wire:
        while polled := wire.poll(topic, POLL_MESSAGES, BY_OFFSET, len(values)):
            values |= {message.offset: message.payload for message in polled}
    return values


def faults(log: Log, ledgers: list[WriterState], others: dict[str, Log] | None = None) -> list[str]:
    """Return every broken promise in Kafka's log, and in the logs of `others`, by protocol."""
    history = EventHistory()
    for ledger in ledgers:
        offsets = {value: offset for offset, value in ledger.acknowledged.items()}
        for value in sorted({*ledger.stored_somewhere, *ledger.unanswered, *ledger.sent_again}):
            sent = history.send(ledger.name, value)
            sent.again = value in ledger.sent_again
            if value in ledger.stored_somewhere:
                history.answer(sent, RequestOutcome.DONE, offsets.get(value))
    for reader, values in {"kafka": log, **(others or {})}.items():
        end = max(values, default=-1) + 1
        history.read(reader, (0, end), sorted(values.items()), whole=True)
    return check(history)


def position_faults(
    address: Address, topic: str, committers: list[GroupCommitter], unanswered: dict[str, set[int]]
) -> list[str]:
    """Return the groups behind their last acknowledged commit, or at a position that nobody
    committed.

    Read through the Kafka listener. `unanswered` are each group's later commits without an answer.
    """
    history = EventHistory()
    with KafkaWire(address) as wire:
        for member in committers:
            history.moved(history.move(member.group, member.position))
            for wanted in unanswered[member.listener]:
                history.move(member.group, wanted)
            # A group that has committed nothing is at -1.
            position = max(wire.committed(member.group, topic), 0)
            history.position_read(member.group, position, "kafka")
    return check(history)
