"""Translates Iggy's permissions to the broker's grants, and back.

Each permission has a mark: a grant that is written for no other permission. Its further grants are
the included permissions. Grants name streams and topics by name, Iggy's permissions by number.
Rules: apache/iggy, `core/metadata/src/permissioner` (0.11). Knows no bytes and no connection.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from braidlog.broker.access.patterns import parse_pattern
from braidlog.broker.access.rules import Grant
from braidlog.protocols.iggy import names
from braidlog.protocols.iggy.errors import Absent, ErrorCode, Refusal
from braidlog.protocols.iggy.user_messages import Permissions, StreamPermissions

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker

Right = tuple[str, str]  # An action, and a pattern of resources.
Rights = Mapping[str, tuple[Right, ...]]

TENANT, TOPICS = names.TENANT, "*"
# Another name of the same resources, for included grants that are not a mark.
INCLUDED = "@*"


def _topic_rights(topic: str) -> Rights:
    """Return the rights to a topic, or to all topics of a pattern. The first of each is the
    mark.
    """
    within = topic + INCLUDED
    reading, writing = ("consume", within), ("produce", within)
    return {
        "manage": (("alter", topic), ("delete", topic), reading, writing),
        "read": (("describe", topic), reading),
        "poll_messages": (("consume", topic),),
        "send_messages": (("produce", topic),),
    }


def _stream_rights(stream: str, topics: str) -> dict[str, tuple[Right, ...]]:
    """Return the rights to a stream or to all streams, and to their topics."""
    within = _topic_rights(topics)
    managing, reading = within["manage"], within["read"]
    creating = ("create", topics)
    return {
        "manage_stream": (("alter", stream), ("delete", stream), creating, *managing[2:]),
        "read_stream": (("describe", stream), *reading[1:]),
        "manage_topics": (*managing, creating),
        "read_topics": reading,
        "poll_messages": within["poll_messages"],
        "send_messages": within["send_messages"],
    }


def _global_rights() -> Rights:
    rights = _stream_rights(TENANT, f"{TENANT}/*/{TOPICS}")
    managing = (*rights.pop("manage_stream"), ("create", TENANT))
    return {
        "manage_servers": (("alter", "cluster/server"),),
        "read_servers": (("describe", "cluster/server"),),
        "manage_users": (("administer", "cluster/users"),),
        "read_users": (("describe", "cluster/users"),),
        "manage_streams": managing,
        "read_streams": rights.pop("read_stream"),
        **rights,
    }


GLOBAL = _global_rights()


def of_stream(stream: str) -> Rights:
    """Return the rights for the permissions of a stream."""
    return _stream_rights(f"{TENANT}/{stream}", f"{TENANT}/{stream}/{TOPICS}")


def of_topic(stream: str, topic: str) -> Rights:
    """Return the rights for the permissions of a topic."""
    rights = dict(_topic_rights(f"{TENANT}/{stream}/{topic}"))
    return {"manage_topic": rights.pop("manage"), "read_topic": rights.pop("read"), **rights}


def grants_for(broker: Broker, subject: str, permissions: Permissions) -> list[Grant]:
    """Return the grants for a user's permissions.

    Raises Refusal for resources that no grant can express: streams and topics that do not exist,
    and names that read like patterns.
    """
    rights = dict.fromkeys(_all_rights(broker, permissions))
    return [Grant(subject, action, resource) for action, resource in rights]


def _all_rights(broker: Broker, permissions: Permissions) -> Iterator[Right]:
    yield from _rights_of(GLOBAL, permissions.granted)
    for stream_id, stream in permissions.streams.items():
        name = _exact(names.get_stream(broker, stream_id).name)
        yield from _rights_of(of_stream(name), stream.granted)
        for topic_id, granted in stream.topics.items():
            topic = _exact(names.get_topic(broker, stream_id, topic_id).name.topic)
            yield from _rights_of(of_topic(name, topic), granted)


def granting_nothing(broker: Broker, permissions: Permissions | None) -> list[str]:
    """Return the resources whose permissions are all false: no grant represents these.

    Raises Refusal as `grants_for`.
    """
    if permissions is None:
        return []
    nothing_granted = [] if permissions.granted else [TENANT]
    for stream_id, stream in permissions.streams.items():
        name = f"{TENANT}/{_exact(names.get_stream(broker, stream_id).name)}"
        if not stream.granted:
            nothing_granted.append(name)
        for topic_id, granted in stream.topics.items():
            if not granted:
                topic = names.get_topic(broker, stream_id, topic_id).name.topic
                nothing_granted.append(f"{name}/{_exact(topic)}")
    return nothing_granted


def _rights_of(rights: Rights, granted: frozenset[str]) -> Iterator[Right]:
    for name in rights:
        if name in granted:
            yield from rights[name]


def _exact(name: str) -> str:
    """Return the name if, as a pattern, it matches only itself. Raises Refusal."""
    try:
        parts = parse_pattern(f"{TENANT}/{name}").parts
    except ValueError:
        parts = ()
    if parts != (TENANT, name) or "*" in name:
        raise Refusal(
            ErrorCode.FEATURE_UNAVAILABLE, f"no permission can name {name!r} and nothing else"
        )
    return name


def is_iggys(grant: Grant) -> bool:
    """Return True for a grant on resources that Iggy's clients can name. Permissions set by such a
    client replace the grant.
    """
    parts = parse_pattern(grant.resource).parts
    if not parts:
        return True
    tenant = parts[0]
    return TENANT.startswith(tenant[:-1]) if tenant.endswith("*") else tenant == TENANT


def permissions_of(
    broker: Broker, subject: str, permitted: Sequence[str] = ()
) -> Permissions | None:
    """Return a user's grants as Iggy's permissions, found by their marks, and the `permitted`
    resources, whose permissions are all false; None if there are neither.
    """
    grants = broker.permissions.list(subject)
    if not grants and not permitted:
        return None
    held = {(grant.action, grant.resource) for grant in grants}
    if ("admin", "*") in held:
        return EVERYTHING
    streams: dict[int, StreamPermissions] = {}
    for stream_name, topics in _named({resource for _, resource in held}, permitted).items():
        stream = names.find_stream(broker, stream_name)
        if stream is None:
            continue
        granted_topics = {}
        for topic_name in topics:
            try:
                topic = names.get_topic(broker, stream_name, topic_name)
            except Absent:
                continue
            granted = _marked(of_topic(stream_name, topic_name), held)
            granted_topics[names.topic_number(broker, topic)] = granted
        granted = _marked(of_stream(stream_name), held)
        streams[stream.stream_id] = StreamPermissions(granted, dict(sorted(granted_topics.items())))
    return Permissions(_marked(GLOBAL, held), dict(sorted(streams.items())))


def _marked(rights: Rights, held: set[Right]) -> frozenset[str]:
    return frozenset(name for name, (mark, *_) in rights.items() if mark in held)


def _named(*resources: Iterable[str]) -> dict[str, set[str]]:
    """Return the streams named by resources, each with the named topics of that stream."""
    topics_by_stream: dict[str, set[str]] = {}
    for resource in itertools.chain(*resources):
        pattern = parse_pattern(resource)
        if pattern.parts[:1] != (TENANT,) or len(pattern.parts) == 1 or "*" in pattern.parts[1]:
            continue
        topics = topics_by_stream.setdefault(pattern.parts[1], set())
        topics.update(topic for topic in pattern.parts[2:] if "*" not in topic)
    return topics_by_stream


EVERYTHING = Permissions(frozenset(GLOBAL))
