"""The Kafka listener fulfils the contract of all listeners, and checks its own options."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec
import pytest

from braidlog.broker.server.adapters import is_framed, load
from braidlog.protocols.kafka.adapter import ADAPTER
from braidlog.protocols.kafka.encoding import encode
from braidlog.protocols.kafka.errors import WIRE_CODES
from braidlog.protocols.kafka.machine import KafkaMachine
from braidlog.protocols.kafka.options import KafkaOptions
from tests.protocols.contract import AdapterContract, AnsweredFrame
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import API_KEYS, fetch, message, message_set, produce, request
from tests.protocols.kafka.layouts import parse_reply

FOO = b"foo"
SOMEWHERE = m.BrokerAddress(1, b"", 0)
ONE_PARTITION = [m.PartitionMetadata(0, 0, 1, [1], [1])]
STORED = message(b"a", None, 0) + message(b"b", None, 1) + message(b"c", b"k", 2)

CONVERSATION: list[tuple[m.RequestBody, m.Reply | None]] = [
    (
        m.MetadataRequest([FOO]),
        m.MetadataReply([SOMEWHERE], [m.TopicMetadata(0, FOO, ONE_PARTITION)]),
    ),
    (
        produce(FOO, {0: message_set(b"a", b"b")}),
        m.ProduceReply({FOO: {0: m.Produced(0, 0)}}),
    ),
    (produce(FOO, {0: message(b"c", b"k")}, acks=0), None),
    (
        produce(FOO, {0: message(b"x")[:-1] + b"y", 1: b""}, acks=-1),
        m.ProduceReply({FOO: {0: m.Produced(2, -1), 1: m.Produced(3, -1)}}),
    ),
    (
        fetch(FOO, {0: (0, 1 << 20)}),
        m.FetchReply({FOO: {0: m.Fetched(0, 3, [STORED], len(STORED))}}),
    ),
    (
        m.OffsetsRequest(-1, {FOO: {0: m.OffsetsTarget(-1, 2)}}),
        m.OffsetsReply({FOO: {0: m.OffsetsFound(0, [3, 0])}}),
    ),
    (
        m.OffsetCommitRequest(1, b"g", -1, b"", {FOO: {0: m.CommitTarget(2, b"m", None)}}),
        m.OffsetCommitReply({FOO: {0: 0}}),
    ),
    (
        m.OffsetFetchRequest(1, b"g", {FOO: [0]}),
        m.OffsetFetchReply({FOO: {0: m.CommittedOffset(2, b"m", 0)}}),
    ),
    (m.ConsumerMetadataRequest(b"g"), m.ConsumerMetadataReply(0, SOMEWHERE)),
]


def exchanges() -> list[AnsweredFrame]:
    exchanges = []
    for number, (body, reply) in enumerate(CONVERSATION):
        answers = [] if reply is None else [b"".join(encode(number, m.handled(reply)))]
        exchanges.append(AnsweredFrame(request(body, number), answers))
    return exchanges


class TestKafkaContract(AdapterContract):
    protocol = "kafka"
    exchanges: ClassVar[Sequence[AnsweredFrame]] = exchanges()
    oversized = (104_857_601).to_bytes(4, "big")
    flood = request(m.ConsumerMetadataRequest(b"g"))
    wire_codes = WIRE_CODES

    def answer_size(self, data: bytes) -> int | None:
        return 4 + int.from_bytes(data[:4], "big") if len(data) >= 4 else None

    def decode(self, data: memoryview) -> None:
        machine = KafkaMachine(KafkaOptions().frame_bytes_max)
        while (size := machine.frame_size(data)) is not None and size <= len(data):
            machine.decode(data[:size])
            data = data[size:]

    def normal(self, frame: bytes) -> object:
        """Return an answer without the broker's address, which differs from run to run."""
        number = int.from_bytes(frame[4:8], "big")
        _, reply = parse_reply(API_KEYS[type(CONVERSATION[number][0])], frame)
        if isinstance(reply, m.MetadataReply):
            reply.brokers = [SOMEWHERE for _ in reply.brokers]
        if isinstance(reply, m.ConsumerMetadataReply):
            reply.coordinator = SOMEWHERE
        return number, reply


def test_the_entry_point_is_the_adapter() -> None:
    adapter = load("kafka")
    assert adapter is ADAPTER
    assert is_framed(adapter)
    assert (adapter.name, adapter.default_address) == ("kafka", ("127.0.0.1", 9092))


def test_defaults_are_those_of_kafka_0_8() -> None:
    options = KafkaOptions()
    assert options.namespace == "public/default"
    assert options.message_bytes_max == 1_000_012
    assert options.frame_bytes_max == 104_857_600
    assert options.offset_metadata_chars_max == 4096
    assert options.idle_timeout_s == 600
    ADAPTER.check(options, loopback=True)


@pytest.mark.parametrize("namespace", ["", "default", "a/b/c", "a/", "a b/c"])
def test_an_invalid_namespace_is_a_single_clear_line(namespace: str) -> None:
    with pytest.raises(ValueError, match="namespace") as error:
        ADAPTER.check(KafkaOptions(namespace=namespace), loopback=True)
    assert "\n" not in str(error.value)


def test_messages_must_fit_frames() -> None:
    with pytest.raises(ValueError, match="frame_bytes_max"):
        ADAPTER.check(KafkaOptions(message_bytes_max=4096, frame_bytes_max=2048), loopback=True)


@pytest.mark.parametrize(
    "wrong", [{"message_bytes_max": 0}, {"idle_timeout_s": 0}, {"acks": 1}, {"frame_bytes_max": -1}]
)
def test_invalid_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, KafkaOptions)


def test_describe_is_a_line_with_the_address() -> None:
    line = ADAPTER.describe("127.0.0.1", 40123, KafkaOptions())
    assert "127.0.0.1:40123" in line
    assert "\n" not in line
