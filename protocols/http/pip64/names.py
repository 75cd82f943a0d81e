"""Names in the paths of PIP-64. Knows topics, no body and no query."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from starlette.requests import Request

from braidlog.protocols.http.errors import INVALID_NAME, PARTITION_NOT_FOUND, RequestRefused
from braidlog.protocols.http.limits import NAME_CHARACTERS_MAX
from braidlog.protocols.http.path_names import path_bytes, topic_name

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.topic import Topic

# Pulsar's rule for names, plus the tilde of URLs. An existing subscription, such as a Kafka group,
# can be reached under any name.
NEW_NAME = re.compile(rf"[A-Za-z0-9_\-.=:~]{{1,{NAME_CHARACTERS_MAX}}}")
RESERVED_TENANTS = ("persistent", "non-persistent")  # Domains in paths, which would be ambiguous.
PARTITION = re.compile(r"[0-9]{1,9}")


def topic_of(broker: Broker, request: Request) -> Topic:
    """Return the topic of the path. Raises RequestRefused, TopicNotFound."""
    name = topic_name(request)
    if name.tenant in RESERVED_TENANTS:
        raise RequestRefused(INVALID_NAME, f"{name.tenant!r} cannot be a tenant")
    return broker.topics.get(name)


def partition_of(topic: Topic, request: Request) -> Partition:
    """Return the partition of the path. Raises RequestRefused, PartitionNotFound."""
    text = request.path_params["partition"]
    if not PARTITION.fullmatch(text):
        raise RequestRefused(PARTITION_NOT_FOUND, f"{topic.name} has no partition {text[:40]!r}")
    return topic.partition(int(text))


def subscription_name(request: Request, *, is_new: bool = False) -> bytes:
    """Return the subscription's name in the path; checked if new. Raises RequestRefused."""
    return _name(path_bytes(request, "subscription"), "subscription", is_new)


def checked_name(text: str, kind: str) -> str:
    """Return a name from a body after a check. Raises RequestRefused."""
    _name(text.encode(), kind, is_new=True)
    return text


def _name(name: bytes, kind: str, is_new: bool) -> bytes:
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise RequestRefused(INVALID_NAME, f"the name of the {kind} is not UTF-8") from None
    if is_new and not NEW_NAME.fullmatch(text):
        rule = f"1 to {NAME_CHARACTERS_MAX} letters, digits and _-.=:~"
        raise RequestRefused(INVALID_NAME, f"{kind} name {text[:80]!r} is not {rule}")
    return name
