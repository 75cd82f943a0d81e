"""A run of SENDs taken without parsing has the same effect as parsed SENDs."""

import random
import struct
import tempfile
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from crc32c import crc32c

from braidlog.broker.delivery.client_policies import ClientPolicies
from braidlog.broker.runtime.endings import ProtocolError
from braidlog.broker.topics.client_limits import ClientLimits, Rate
from braidlog.broker.topics.partition_calls import Appended
from braidlog.protocols.pulsar import messages
from braidlog.protocols.pulsar.machine import PulsarMachine
from braidlog.protocols.pulsar.sending import Sending
from braidlog.storage.formats import batch, quick
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import (
    BaseCommand,
    CommandSend,
    KeyValue,
    MessageMetadata,
)

FRAMES_MAX = 1024
TIME_MS = 1_700_000_000_000


@dataclass
class FakeClient:
    """A connection with two open producers; records stored entries and answers."""

    machine: PulsarMachine = field(default_factory=PulsarMachine)
    version_text: str = "Pulsar-Java-v4"
    stored: list = field(default_factory=list)
    answered: bytes = b""
    last_sequence: int | None = None  # Of both producers; None: without deduplication.
    closed: list = field(default_factory=list)  # Numbers of producers.
    limits: ClientLimits = field(default_factory=ClientLimits)
    number: int = 0  # Of both producers in the catalogue.
    at_once: int = 0  # SENDs that were stored without a run.

    def __post_init__(self):
        self.machine.connected()
        self.outbox = SimpleNamespace(answer=self._answer)
        self.connection = SimpleNamespace(protocol="pulsar")
        metrics = SimpleNamespace(records_in=lambda *counted: self.stored.append(counted))
        policies = ClientPolicies(SimpleNamespace(), SimpleNamespace(), lambda: 0.0)
        self.broker = SimpleNamespace(now_us=lambda: 5, metrics=metrics, client_policies=policies)
        self._end = 100
        partition = SimpleNamespace(
            traffic=None,
            is_persistent=True,
            append=self._append,
            append_at_once=self._append_at_once,
            partition_id=7,
            metrics_name="public/default/t",
            appended_ticket=0,
        )
        partition.stored = lambda: partition
        self.producers = {
            number: SimpleNamespace(
                topic=SimpleNamespace(client_limits=self.limits),
                partition=partition,
                producer_id=number,
                number=self.number,
                epoch=self.number and 2**64 - 3,
                is_ready=True,
                last_sequence=self.last_sequence,
            )
            for number in (1, 2)
        }

    def was_closed(self, producer_id):
        return False

    def close_producer(self, producer):
        self.closed.append(producer.producer_id)

    def _append(self, body, info, **_):
        self.stored.append((b"".join(map(bytes, body)), info))
        self._end += info.record_count
        return Appended(self._end - info.record_count, 0)

    def _append_at_once(self, entry, once):
        with tempfile.TemporaryFile(buffering=0) as file:
            place = (file.fileno(), 0, 9, 7, 0, self._end, 1 << 62, 0)
            if once.write(entry, *place, once.bytes_max, once.append_us, *once.producer) is None:
                return None
            data = file.read()
        header = batch.unpack(data, 9)
        body = data[batch.HEADER_BYTES :]
        assert (header.base_offset, header.body_bytes) == (self._end, len(body))
        self.at_once += 1
        fields = {name: getattr(header, name) for name in BodyInfo.__dataclass_fields__}
        self.stored.append((body, BodyInfo(**fields)))
        self._end += 1
        return self._end - 1, 1, 0

    def _answer(self, parts, ticket):
        self.answered += b"".join(parts)

    def count_refused(self, code, count=1):
        self.stored.append((code, count))


def frame(command, metadata, payload=b"p", *, damaged=False, checksum=True):
    packed = metadata if isinstance(metadata, bytes) else metadata.SerializeToString()
    rest = struct.pack(">I", len(packed)) + packed + payload
    if checksum:
        rest = b"\x0e\x01" + struct.pack(">I", crc32c(rest) ^ damaged) + rest
    base = BaseCommand(type=BaseCommand.SEND, send=command).SerializeToString()
    return struct.pack(">II", 4 + len(base) + len(rest), len(base)) + base + rest


def sends(rng, count):
    """Return SENDs that mostly repeat the SEND before with the next numbers."""
    frames = []
    numbers = {1: rng.choice([0, 100, 5000, 2**64 - 60]), 2: rng.getrandbits(30)}
    producer_id, time_ms, fields, highest = 1, TIME_MS, {}, {}
    for _ in range(count):
        if rng.random() < 0.04:
            producer_id = rng.choice([1, 2])
        if rng.random() < 0.04:
            time_ms += rng.choice([-1, 1])
        if rng.random() < 0.04:
            fields = rng.choice([{}, {"partition_key": "k"}, {"deliver_at_time": 9}, LAST_CHUNK])
            highest = rng.choice([{}, {}, {"highest_sequence_id": 2**40}])
        numbers[producer_id] += rng.choice([1] * 40 + [0, 2, -127])
        number = numbers[producer_id] % 2**64
        more, command_more, how = {}, {}, {}
        if rng.random() < 0.05:
            more, command_more, how = rng.choice(ODD)
        metadata = MessageMetadata(
            producer_name="p",
            sequence_id=more.get("sequence_id", number),
            publish_time=time_ms,
            **fields,
        )
        for name, value in more.items():
            if name == "properties":
                metadata.properties.append(KeyValue(key="a", value=value))
            else:
                setattr(metadata, name, value)
        command = CommandSend(producer_id=producer_id, sequence_id=number, **highest | command_more)
        payload = rng.randbytes(rng.choice([9] * 30 + [0, 10, 9000]))
        frames.append(frame(command, metadata, payload, **how))
    return frames


# The last chunk's receipt differs.
LAST_CHUNK = {"num_chunks_from_msg": 2, "chunk_id": 1, "uuid": "u"}
# Further metadata, further command fields, other oddities of the frame.
ODD = [
    ({"properties": "b"}, {}, {}),
    ({"num_messages_in_batch": 1}, {"num_messages": 1}, {}),
    ({"sequence_id": 3}, {}, {}),
    (LAST_CHUNK, {}, {}),
    ({"marker_type": 1}, {}, {}),
    ({}, {"highest_sequence_id": 2**40}, {}),
    ({}, {"num_messages": 1}, {}),
    ({}, {"txnid_most_bits": 1, "txnid_least_bits": 1}, {}),
    ({}, {}, {"damaged": True}),
    ({}, {}, {"checksum": False}),
]


def one_by_one(frames, last_sequence=None):
    """Return the client after all frames were parsed."""
    client = FakeClient(last_sequence=last_sequence)
    taking = Sending(client)
    for frame in frames:
        command = client.machine.decode(memoryview(frame))
        taking.add(command.fields, command.payload)
    taking.flush()
    return client


def in_runs(frames, rng, last_sequence=None):
    """Return the client after receives of random size, and the number of frames taken without
    parsing.
    """
    client = FakeClient(last_sequence=last_sequence)
    taking = Sending(client)
    parsed = 0
    client.machine.next_send = counting = CountingNext(client.machine.next_send)
    data, pending = b"".join(frames), b""
    while data:
        size = rng.choice([50, 3000, 100_000])
        pending, data = pending + data[:size], data[size:]
        while True:
            taken_bytes, count = taking.take(memoryview(bytearray(pending)), FRAMES_MAX)
            pending = pending[taken_bytes:]
            if not count:
                break
    assert not pending
    taking.flush()
    parsed = counting.found
    return client, len(frames) - parsed


class CountingNext:
    """Counts the parsed SENDs."""

    def __init__(self, next_send):
        self._next_send = next_send
        self.found = 0

    def __call__(self, view, pos):
        send = self._next_send(view, pos)
        self.found += send is not None
        return send


@pytest.mark.parametrize("seed", range(25))
def test_runs_are_stored_and_answered_like_single_sends(seed):
    rng = random.Random(seed)
    frames = sends(rng, 600)
    known = rng.choice([None, None, -1, 200, 5100])
    client, _ = in_runs(frames, rng, known)
    expected = one_by_one(frames, known)
    assert client.stored == expected.stored, f"seed {seed}"
    assert client.answered == expected.answered, f"seed {seed}"
    assert client.closed == expected.closed, f"seed {seed}"
    assert [client.producers[n].last_sequence for n in (1, 2)] == [
        expected.producers[n].last_sequence for n in (1, 2)
    ]


def each_alone(client, frames):
    """Return the client after receives of a whole frame each."""
    taking = Sending(client)
    for frame in frames:
        size, count = taking.take(memoryview(bytearray(frame)), FRAMES_MAX)
        if count:
            assert (size, count) == (len(frame), 1)
        else:  # As the session does with any other command.
            command = client.machine.decode(memoryview(frame))
            taking.add(command.fields, command.payload)
        taking.flush()
    return client


def each_in_a_run(client, frames):
    """Return the client after a run for each frame."""
    taking = Sending(client)
    for frame in frames:
        command = client.machine.decode(memoryview(frame))
        taking.add(command.fields, command.payload)
        taking.flush()
    return client


@pytest.mark.parametrize("number", [0, 12])
@pytest.mark.parametrize("seed", range(5))
def test_a_send_alone_is_stored_and_answered_like_a_run(seed, number):
    frames = sends(random.Random(seed), 300)
    client = each_alone(FakeClient(number=number), frames)
    expected = each_in_a_run(FakeClient(number=number), frames)
    assert client.stored == expected.stored, f"seed {seed}"
    assert client.answered == expected.answered, f"seed {seed}"
    assert client.at_once > 20 or quick.SPEEDUPS is None


@pytest.mark.parametrize(
    "options",
    [
        {"last_sequence": 3},
        {"limits": ClientLimits(message_bytes=1000)},
        {"limits": ClientLimits(publish=Rate(1000, None))},
    ],
    ids=["deduplicated", "checked", "rated"],
)
def test_a_send_with_rules_is_not_stored_at_once(options):
    frames = [
        frame(
            CommandSend(producer_id=1, sequence_id=number),
            MessageMetadata(producer_name="p", publish_time=TIME_MS, sequence_id=number),
        )
        for number in range(10)
    ]
    client = each_alone(FakeClient(**options), frames)
    assert client.at_once == 0
    assert client.stored == each_in_a_run(FakeClient(**options), frames).stored
    assert client.stored


def test_a_send_is_stored_after_those_before_it():
    frames = sends(random.Random(3), 40)
    client = FakeClient()
    taking = Sending(client)
    first = client.machine.decode(memoryview(frames[0]))
    taking.add(first.fields, first.payload)
    taking.take(memoryview(bytearray(frames[1])), FRAMES_MAX)
    assert (client.at_once, client.stored) == (0, [])
    taking.flush()
    assert client.stored == one_by_one(frames[:2]).stored


@pytest.mark.skipif(quick.SPEEDUPS is None, reason="without the extension each is parsed")
def test_ordinary_sends_are_not_parsed():
    frames = []
    for number in range(5000, 6000):
        metadata = MessageMetadata(
            producer_name="p", publish_time=TIME_MS + number, sequence_id=number
        )
        metadata.properties.add(key="n", value=str(number))
        packed = metadata.SerializeToString()
        # Any order of the fields is valid: every second frame has the name behind the numbers.
        metadata = packed if number % 2 else packed[3:] + packed[:3]
        frames.append(
            frame(CommandSend(producer_id=1, sequence_id=number), metadata, b"p" * (number % 200))
        )
    client, unparsed = in_runs(frames, random.Random(1))
    assert unparsed == 1000
    assert client.stored == one_by_one(frames).stored


def test_a_closed_producers_sends_are_ignored():
    frames = [
        frame(
            CommandSend(producer_id=1, sequence_id=number),
            MessageMetadata(producer_name="p", publish_time=TIME_MS, sequence_id=number),
        )
        for number in range(100)
    ]
    client = FakeClient()
    taking = Sending(client)
    taking.take(memoryview(b"".join(frames[:50])), FRAMES_MAX)
    taking.flush()
    del client.producers[1]
    with pytest.raises(ProtocolError):
        taking.take(memoryview(b"".join(frames[50:])), FRAMES_MAX)


def test_the_number_of_taken_frames_has_a_limit():
    frames = [
        frame(
            CommandSend(producer_id=1, sequence_id=number),
            MessageMetadata(producer_name="p", publish_time=TIME_MS, sequence_id=number),
        )
        for number in range(100)
    ]
    taking = Sending(FakeClient())
    size, count = taking.take(memoryview(b"".join(frames)), 70)
    assert (size, count) == (sum(map(len, frames[:70])), 70)


@pytest.mark.parametrize("seed", range(10))
def test_receipts_equal_those_of_a_fresh_writer(seed):
    rng = random.Random(seed)
    writer = messages.ReceiptWriter()
    sequence_id, entry, highest = rng.choice([0, 100, 2**63]), rng.choice([0, 2**34]), 2**64 - 1
    writer.begin(1, 489)
    for _ in range(400):
        if rng.random() < 0.05:
            sequence_id = rng.getrandbits(rng.randint(1, 63))
        if rng.random() < 0.05:
            entry += rng.choice([1, 100, 2**20])
        if rng.random() < 0.03:
            highest = rng.choice([2**64 - 1, 5])
        fresh = messages.ReceiptWriter()
        fresh.begin(1, 489)
        expected = fresh.write(sequence_id, entry, highest)
        assert writer.write(sequence_id, entry, highest) == expected, f"seed {seed}"
        sequence_id, entry = sequence_id + 1, entry + 1
