"""Names of topics and namespaces: which may be stored, and which of those each protocol can use.

Knows no catalogue: whether a name exists is checked elsewhere.
"""

import re
from typing import Final

import msgspec

NAME_BYTES_MAX: Final = 255  # Iggy's length byte; Kafka's 249 is checked separately.
# Kafka's own later limit: 0.8 took 255, which leaves no room in the names of its folders.
KAFKA_NAME_MAX: Final = 249
DEFAULT_TENANT: Final = "public"
DEFAULT_NAMESPACE: Final = "default"
DURABLE_DOMAIN: Final = "persistent"

KAFKA_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{KAFKA_NAME_MAX}}}")
PULSAR_ENTITY = re.compile(r"[a-zA-Z0-9=:._-]+")  # Pulsar's NamedEntity.java.
PARTITION_NAME = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,9})", re.DOTALL)
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class InvalidTopicName(ValueError):
    """A topic or namespace name breaks the naming rules."""


class TopicName(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """Name of a topic. A msgspec struct, so that journal records hold the name unchanged."""

    tenant: str
    namespace: str
    topic: str

    @property
    def full(self) -> str:
        """`tenant/namespace/topic`."""
        return f"{self.tenant}/{self.namespace}/{self.topic}"

    def __str__(self) -> str:
        return self.full


def parse_topic(text: str) -> TopicName:
    """Read `t`, `tenant/ns/t` or `persistent://tenant/ns/t` and check each part.

    Raises InvalidTopicName; also for other domains and for the old four-part names.
    """
    domain, has_domain, path = text.partition("://")
    if not has_domain:
        path = text
    elif domain != DURABLE_DOMAIN:
        raise InvalidTopicName(f"{text!r}: only persistent:// topics are served")
    parts = path.split("/")
    if len(parts) == 1 and not has_domain:
        parts = [DEFAULT_TENANT, DEFAULT_NAMESPACE, path]
    if len(parts) != 3:
        raise InvalidTopicName(f"{text!r} is neither a topic nor tenant/namespace/topic")
    name = TopicName(*parts)
    check_topic_name(name)
    return name


def check_topic_name(name: TopicName) -> None:
    """Check that all three parts may be stored. Raises InvalidTopicName."""
    check_namespace(name.tenant, name.namespace)
    if reason := _fault(name.topic):
        raise InvalidTopicName(f"topic name {name.topic!r} {reason}")


def check_namespace(tenant: str, namespace: str) -> None:
    """Check that tenant and namespace may be stored. Raises InvalidTopicName.

    A tenant follows Pulsar's rule. A namespace may hold any name that Iggy accepts for a stream,
    including inner blanks and letters of any script.
    """
    if not PULSAR_ENTITY.fullmatch(tenant) or len(tenant) > NAME_BYTES_MAX:
        raise InvalidTopicName(f"tenant {tenant!r} may hold only letters, digits and -=:._")
    if reason := _fault(namespace):
        raise InvalidTopicName(f"namespace {namespace!r} {reason}")


def valid_namespace(tenant: str, namespace: str) -> bool:
    """Return True if tenant and namespace may be stored."""
    try:
        check_namespace(tenant, namespace)
    except InvalidTopicName:
        return False
    return True


def split_partition(topic: str) -> tuple[str, int] | None:
    """(`x`, 3) for `x-partition-3`; None for an ordinary name."""
    match = PARTITION_NAME.fullmatch(topic)
    return (match[1], int(match[2])) if match else None


def kafka_legal(topic: str) -> bool:
    """Return True if Kafka clients can name this topic (kafka/common/Topic.scala of 0.8.2)."""
    return KAFKA_NAME.fullmatch(topic) is not None and topic not in (".", "..")


def _fault(text: str) -> str | None:
    """Why a namespace's or topic's own name cannot be stored; None if it can."""
    if not text.strip():
        return "is blank"
    if "/" in text:
        return "holds a slash"
    if CONTROL.search(text):
        return "holds control characters"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "is not Unicode text"
    if size > NAME_BYTES_MAX:
        return f"is longer than {NAME_BYTES_MAX} bytes"
    return None
