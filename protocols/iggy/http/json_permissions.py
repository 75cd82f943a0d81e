"""A user's permissions in the JSON of Iggy's HTTP API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.http.json_values import Json, name_of, refused
from braidlog.protocols.iggy.permission_field import PERMITTED_MAX


class MessageRights(msgspec.Struct):
    """Permissions on messages."""

    poll_messages: bool = False
    send_messages: bool = False


class TopicRights(MessageRights):
    """Permissions on a topic."""

    manage_topic: bool = False
    read_topic: bool = False


class TopicsRights(MessageRights):
    """Permissions on all topics."""

    manage_topics: bool = False
    read_topics: bool = False


class StreamRights(TopicsRights):
    """Permissions on a stream."""

    manage_stream: bool = False
    read_stream: bool = False
    topics: dict[str, TopicRights] | None = None


class GlobalRights(TopicsRights):
    """Permissions everywhere."""

    manage_servers: bool = False
    read_servers: bool = False
    manage_users: bool = False
    read_users: bool = False
    manage_streams: bool = False
    read_streams: bool = False


class PermissionsBody(msgspec.Struct, rename={"everywhere": "global"}):
    """A user's permissions."""

    everywhere: GlobalRights
    streams: dict[str, StreamRights] | None = None


def permissions_of(body: PermissionsBody | None) -> u.Permissions | None:
    """Return a user's permissions. Raises Refusal."""
    if body is None:
        return None
    streams = body.streams or {}
    count = len(streams) + sum(len(rights.topics or {}) for rights in streams.values())
    if count > PERMITTED_MAX:
        raise refused(f"permissions: more than {PERMITTED_MAX} streams and topics")
    return u.Permissions(
        _granted(body.everywhere, u.GLOBAL_PERMISSIONS),
        {_catalogue(number): _stream(rights) for number, rights in streams.items()},
    )


def _stream(rights: StreamRights) -> u.StreamPermissions:
    return u.StreamPermissions(
        _granted(rights, u.STREAM_PERMISSIONS),
        {
            _catalogue(number): _granted(topic, u.TOPIC_PERMISSIONS)
            for number, topic in (rights.topics or {}).items()
        },
    )


def _granted(rights: object, names: Sequence[str]) -> frozenset[str]:
    return frozenset(name for name in names if getattr(rights, name))


def _catalogue(text: str) -> int:
    """Return the catalogue's number of a stream or topic. Raises Refusal."""
    number = name_of(text)
    if isinstance(number, str):
        raise refused(f"permissions: {text!r} is no number of a stream or topic")
    return number


def permissions_json(info: r.UserPermissions) -> Json | None:
    """Return a user's permissions."""
    permissions = info.permissions
    if permissions is None:
        return None
    streams = {
        str(number - 1): {
            **_flags(u.STREAM_PERMISSIONS, stream.granted),
            "topics": {
                str(topic - 1): _flags(u.TOPIC_PERMISSIONS, granted)
                for topic, granted in stream.topics.items()
            }
            or None,
        }
        for number, stream in permissions.streams.items()
    }
    everywhere = _flags(u.GLOBAL_PERMISSIONS, permissions.granted)
    return {"global": everywhere, "streams": streams or None}


def _flags(names: Iterable[str], granted: frozenset[str]) -> dict[str, bool]:
    return {name: name in granted for name in names}
