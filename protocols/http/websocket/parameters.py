"""Query parameters of Pulsar's WebSocket API, checked as the builders of Apache's Java client do.

Unknown parameters are ignored. Knows no topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from braidlog.broker.delivery.consumer import SubscriptionKind
from braidlog.protocols.http.errors import BAD_QUERY, NOT_SUPPORTED, RequestRefused
from braidlog.protocols.http.ids import BadMessageId, MessageId, read_id
from braidlog.protocols.http.limits import ACK_TIMEOUT_MS_MAX, NAME_CHARACTERS_MAX

Texts = Mapping[str, str]
QUEUE_MAX: Final = 1000  # Apache lowers larger receiver queues to this size.
NACK_DELAY_MS: Final = 60_000  # The default of Pulsar's clients.
ACK_TIMEOUT_MS_MIN: Final = 1000  # As in Apache.
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
ROUTING: Final = ("SinglePartition", "RoundRobinPartition", "CustomPartition")
COMPRESSION: Final = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
HASHING: Final = ("JavaStringHash", "Murmur3_32Hash")
KINDS: Final = {kind.value: kind for kind in SubscriptionKind}


def bad_parameter(text: str) -> RequestRefused:
    """Return the refusal of a parameter, in Apache's words."""
    return RequestRefused(BAD_QUERY, f"Invalid query params: {text}")


@dataclass(frozen=True, slots=True)
class ProducerParameters:
    """The parameters of a producer. Batching and compression need no action: the broker stores
    messages that arrive together in one batch.
    """

    name: str | None
    initial_sequence: int | None  # The sequence before the first message.
    is_round_robin: bool
    is_murmur: bool
    pending_max: int

    @classmethod
    def read(cls, texts: Texts) -> ProducerParameters:
        """Return the parameters. Raises RequestRefused."""
        name = _name(texts, "producerName")
        initial = _number(texts, "initialSequenceId", -1, most=INT64_MAX - 1)
        scheme = texts.get("hashingScheme", HASHING[0])
        if scheme not in HASHING:
            text = f"No enum constant org.apache.pulsar.client.api.HashingScheme.{scheme[:64]}"
            raise bad_parameter(text)
        _number(texts, "sendTimeoutMillis", 0, check=_at_least_zero("sendTimeout"))
        _number(texts, "batchingMaxMessages", 0)
        _number(texts, "batchingMaxPublishDelay", 0)
        pending = _number(texts, "maxPendingMessages", QUEUE_MAX)
        routing = texts.get("messageRoutingMode", ROUTING[0])
        if routing not in ROUTING:
            raise bad_parameter(f"Invalid messageRoutingMode {routing[:64]}")
        compression = texts.get("compressionType", COMPRESSION[0])
        if compression not in COMPRESSION:
            raise bad_parameter(f"Invalid compressionType {compression[:64]}")
        if "encryptionKeys" in texts:
            raise RequestRefused(NOT_SUPPORTED, "encryptionKeys: the broker does not encrypt")
        return cls(
            name,
            max(initial, -1) if "initialSequenceId" in texts else None,
            routing == "RoundRobinPartition",
            scheme == "Murmur3_32Hash",
            pending if 0 < pending < QUEUE_MAX else QUEUE_MAX,
        )


@dataclass(frozen=True, slots=True)
class DeadLetterLimit:
    """The deliveries after which a message moves to the dead letter topic."""

    redeliveries_max: int
    topic: str | None  # None: the topic's name, the subscription's, `DLQ`.


@dataclass(frozen=True, slots=True)
class ConsumerParameters:
    """The parameters of a consumer."""

    kind: SubscriptionKind
    name: str | None
    queue: int
    is_pulling: bool
    is_earliest: bool
    ack_timeout_s: float
    nack_delay_s: float
    priority: int
    dead_letters: DeadLetterLimit | None

    @classmethod
    def read(cls, texts: Texts) -> ConsumerParameters:
        """Return the parameters. Raises RequestRefused."""
        ack_timeout_ms = _number(texts, "ackTimeoutMillis", 0, check=_ack_timeout)
        kind = texts.get("subscriptionType", "Exclusive")
        if kind not in KINDS:
            raise bad_parameter(f"Invalid subscriptionType {kind[:64]}")
        mode = texts.get("subscriptionMode", "Durable")
        if mode not in ("Durable", "NonDurable"):
            raise bad_parameter(f"Invalid subscriptionMode {mode[:64]}")
        if mode == "NonDurable":
            raise RequestRefused(NOT_SUPPORTED, "subscriptionMode NonDurable: use a reader")
        start = texts.get("subscriptionInitialPosition", "Latest")
        if start not in ("Latest", "Earliest"):
            raise bad_parameter(f"Invalid subscriptionInitialPosition {start[:64]}")
        return cls(
            KINDS[kind],
            _name(texts, "consumerName"),
            _queue(texts),
            texts.get("pullMode", "").lower() == "true",
            start == "Earliest",
            ack_timeout_ms / 1000,
            _number(
                texts,
                "negativeAckRedeliveryDelay",
                NACK_DELAY_MS,
                check=_at_least_zero("redeliveryDelay"),
            )
            / 1000,
            _number(texts, "priorityLevel", 0, check=_at_least_zero("priorityLevel")),
            _dead_letters(texts),
        )


@dataclass(frozen=True, slots=True)
class ReaderParameters:
    """The parameters of a reader: None starts at the end, an id after the message."""

    queue: int
    start: MessageId | None
    is_earliest: bool

    @classmethod
    def read(cls, texts: Texts) -> ReaderParameters:
        """Return the parameters. Raises RequestRefused."""
        start = texts.get("messageId", "").strip()
        wanted = None
        if start not in ("", "earliest", "latest"):
            try:
                wanted = read_id(start)
            except BadMessageId:
                raise bad_parameter("Invalid messageId value") from None
        return cls(_queue(texts), wanted, start == "earliest")


def _queue(texts: Texts) -> int:
    """Return the number of messages that may be on their way; 0 means 1."""
    size = _number(texts, "receiverQueueSize", QUEUE_MAX, check=_at_least_zero("receiverQueueSize"))
    return min(max(size, 1), QUEUE_MAX)


def _dead_letters(texts: Texts) -> DeadLetterLimit | None:
    if "maxRedeliverCount" not in texts and "deadLetterTopic" not in texts:
        return None
    most = _number(texts, "maxRedeliverCount", 0)
    if most <= 0:
        raise bad_parameter("MaxRedeliverCount must be > 0.")
    return DeadLetterLimit(most, texts.get("deadLetterTopic"))


def _name(texts: Texts, parameter: str) -> str | None:
    name = texts.get(parameter)
    if name is None:
        return None
    if not name.strip():
        raise bad_parameter(f"{parameter} cannot be blank")
    if len(name) > NAME_CHARACTERS_MAX:
        raise bad_parameter(f"{parameter} is longer than {NAME_CHARACTERS_MAX} characters")
    return name


def _number(
    texts: Texts,
    parameter: str,
    default: int,
    *,
    check: Callable[[int], str | None] = lambda _: None,
    most: int = INT32_MAX,
) -> int:
    text = texts.get(parameter)
    if text is None:
        return default
    if not (NUMBER.fullmatch(text) and -most - 1 <= int(text) <= most):
        raise bad_parameter(f'For input string: "{text[:64]}"')
    fault = check(int(text))
    if fault is not None:
        raise bad_parameter(fault)
    return int(text)


def _at_least_zero(name: str) -> Callable[[int], str | None]:
    return lambda value: f"{name} needs to be >= 0" if value < 0 else None


def _ack_timeout(value: int) -> str | None:
    if value and value < ACK_TIMEOUT_MS_MIN:
        return f"Ack timeout should be greater than {ACK_TIMEOUT_MS_MIN} ms"
    if value > ACK_TIMEOUT_MS_MAX:
        return f"Ack timeout should be at most {ACK_TIMEOUT_MS_MAX} ms"
    return None
