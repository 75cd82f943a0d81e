"""Answers of Iggy's handlers as the JSON of its HTTP API. Knows no route and no request.

Sizes are texts with a unit, and numbers start at 0, as in Iggy's server 0.9.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import trio

from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.http.bodies import (
    COMPRESSIONS,
    HEADER_FIELD,
    MESSAGE,
    MESSAGES_PER_TURN,
)
from braidlog.protocols.iggy.topic_options import unpacked
from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.record import HeaderKind

Json = dict[str, Any]

TRANSPORTS: Final = {1: "TCP", 2: "QUIC", 3: "HTTP", 4: "WebSocket"}
STATUSES: Final = {1: "active", 2: "inactive"}


def size_text(size: int) -> str:
    """Return a size as Iggy's clients read it."""
    return f"{size} B"


def stream_json(info: r.StreamInfo) -> Json:
    return {
        "id": info.stream_id - 1,
        "created_at": info.created_us,
        "name": info.name,
        "size": size_text(info.size_bytes),
        "messages_count": info.messages_count,
        "topics_count": info.topics_count,
        "options": options_json(info.options, info.derived_options),
    }


def topic_json(info: r.TopicDetails) -> Json:
    return {
        "id": info.topic_id - 1,
        "created_at": info.created_us,
        "name": info.name,
        "size": size_text(info.size_bytes),
        "message_expiry": info.expiry_us,
        "compression_algorithm": COMPRESSIONS.get(info.compression, "none"),
        "max_topic_size": info.size_max,
        "replication_factor": max(info.replication, 1),
        "messages_count": info.messages_count,
        "partitions_count": info.partitions_count,
        "options": options_json(info.options, info.derived_options),
    }


def partition_json(info: r.PartitionDetails) -> Json:
    return {
        "id": info.partition,
        "created_at": info.created_us,
        "segments_count": info.segments_count,
        "current_offset": info.current_offset,
        "size": size_text(info.size_bytes),
        "messages_count": info.messages_count,
    }


def stream_details(records: Sequence[Any]) -> Json:
    """Return a stream with its topics."""
    stream, *topics = records
    return {**stream_json(stream), "topics": [topic_json(topic) for topic in topics]}


def topic_details(records: Sequence[Any]) -> Json:
    """Return a topic with its partitions."""
    topic, *partitions = records
    return {
        **topic_json(topic),
        "partitions": [partition_json(partition) for partition in partitions],
    }


def topics_json(records: Sequence[Any]) -> list[Json]:
    return [topic_json(record) for record in records if isinstance(record, r.TopicDetails)]


def group_json(info: r.GroupInfo) -> Json:
    """Return a consumer group."""
    return {
        "id": info.group_id - 1,
        "name": info.name,
        "partitions_count": info.partitions_count,
        "members_count": info.members_count,
    }


def group_details(records: Sequence[Any]) -> Json:
    """Return a consumer group with its members."""
    group, *members = records
    return {
        **group_json(group),
        "members": [
            {
                "id": member.member_id,
                "partitions_count": len(member.partitions),
                "partitions": member.partitions,
            }
            for member in members
        ],
    }


def client_json(info: r.ClientInfo) -> Json:
    """Return a connection."""
    return {
        "client_id": info.client_id,
        "user_id": info.user_id,
        "address": info.address,
        "transport": TRANSPORTS.get(info.transport, "TCP"),
        "consumer_groups_count": info.groups_count,
    }


def client_details(records: Sequence[Any]) -> Json:
    """Return a connection with its memberships."""
    client, *groups = records
    memberships = [
        {
            "stream_id": group.stream_id - 1,
            "topic_id": group.topic_id - 1,
            "group_id": group.group_id - 1,
        }
        for group in groups
    ]
    return {**client_json(client), "consumer_groups": memberships}


def user_json(info: r.UserDetails) -> Json:
    return {
        "id": info.user_id,
        "created_at": info.created_us,
        "status": STATUSES.get(info.status, "inactive"),
        "username": info.username,
        "options": options_json(info.options, info.derived_options),
    }


def user_details(records: Sequence[Any]) -> Json:
    """Return a user with permissions."""
    user, rights = records
    return {**user_json(user), "permissions": permissions_json(rights.permissions)}


def permissions_json(permissions: u.Permissions | None) -> Json | None:
    """Return a user's permissions."""
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
    return {
        "global": _flags(u.GLOBAL_PERMISSIONS, permissions.granted),
        "streams": streams or None,
    }


def _flags(names: Iterable[str], granted: frozenset[str]) -> dict[str, bool]:
    return {name: name in granted for name in names}


def token_json(info: r.TokenDetails) -> Json:
    """Return an access token, without its secret."""
    return {"name": info.name, "expiry_at": info.expires_us or None}


def stats_json(info: r.StatsReply) -> Json:
    """Return the statistics of the broker."""
    return {
        "process_id": info.process_id,
        "cpu_usage": info.cpu_usage,
        "total_cpu_usage": info.total_cpu_usage,
        "memory_usage": size_text(info.memory_bytes),
        "total_memory": size_text(info.memory_total_bytes),
        "available_memory": size_text(info.memory_available_bytes),
        "run_time": info.run_time_us,
        "start_time": info.start_time_us,
        "read_bytes": size_text(info.read_bytes),
        "written_bytes": size_text(info.written_bytes),
        "messages_size_bytes": size_text(info.messages_bytes),
        "streams_count": info.streams_count,
        "topics_count": info.topics_count,
        "partitions_count": info.partitions_count,
        "segments_count": info.segments_count,
        "messages_count": info.messages_count,
        "clients_count": info.clients_count,
        "consumer_groups_count": info.groups_count,
        "hostname": info.hostname,
        "os_name": info.os_name,
        "os_version": info.os_version,
        "kernel_version": info.kernel_version,
        "iggy_server_version": info.server_version,
        "iggy_server_semver": info.server_semver,
        "cache_metrics": {},
        "threads_count": info.threads_count,
        "free_disk_space": size_text(info.disk_free_bytes),
        "total_disk_space": size_text(info.disk_total_bytes),
    }


def cluster_json(records: Sequence[Any]) -> Json:
    """Return the cluster with its nodes."""
    nodes = []
    for node in records:
        tcp, http, websocket = node.ports
        nodes.append(
            {
                "replica_id": node.replica_id,
                "name": node.name,
                "ip": node.host,
                "endpoints": {"tcp": tcp, "quic": 0, "http": http, "websocket": websocket},
                "role": "leader",
                "status": "healthy",
            }
        )
    return {"name": records[0].cluster, "nodes": nodes}


def option_json(info: r.OptionInfo) -> Json:
    """Return an option that can be set."""
    return {
        "key": info.key,
        "kind": HeaderKind(info.kind).name.lower(),
        "default": _option_text(info.kind, info.default),
        "description": info.description,
    }


def options_json(explicit: bytes, derived: bytes) -> Json:
    """Return a resource's options with their values as texts."""
    return {
        key: {
            "value": _option_text(kind, value),
            "kind": HeaderKind(kind).name.lower(),
            "explicit": is_explicit,
        }
        for block, is_explicit in ((derived, False), (explicit, True))
        for key, (kind, value) in unpacked(block).items()
    }


def _option_text(kind: int, value: bytes) -> str:
    if kind == HeaderKind.STRING:
        return value.decode("utf-8", "replace")
    if kind == HeaderKind.BOOL:
        return "true" if any(value) else "false"
    return str(int.from_bytes(value, "little"))


async def polled_json(head: r.PolledHead, tail: Sequence[Buffer]) -> bytes:
    """Return polled messages in the form of D5 as JSON; other tasks get their turns."""
    pieces = [
        b'{"partition_id":%d,"current_offset":%d,"count":%d,"messages":['
        % (head.partition & 0xFFFF_FFFF, head.current_offset, head.messages_count)
    ]
    is_first = True
    async for message in _in_turns(tail):
        if not is_first:
            pieces.append(b",")
        is_first = False
        pieces.append(msgspec.json.encode(message))
    pieces.append(b"]}")
    return b"".join(pieces)


async def _in_turns(tail: Sequence[Buffer]) -> AsyncIterator[Json]:
    count = 0
    for part in tail:
        view, pos = memoryview(part), 0
        while pos < len(view):
            message, pos = _message_json(view, pos)
            yield message
            count += 1
            if count % MESSAGES_PER_TURN == 0:
                await trio.lowlevel.checkpoint()


def _message_json(view: memoryview, pos: int) -> tuple[Json, int]:
    """Return a message, and the place of the next."""
    fields = MESSAGE.unpack_from(view, pos)
    checksum, number, offset, timestamp, origin, headers_bytes, payload_bytes, _ = fields
    start = pos + MESSAGE.size
    end = start + payload_bytes
    message = {
        "header": {
            "checksum": checksum,
            "id": int.from_bytes(number, "little"),
            "offset": offset,
            "timestamp": timestamp,
            "origin_timestamp": origin,
            "user_headers_length": headers_bytes,
            "payload_length": payload_bytes,
            "reserved": 0,
        },
        "payload": base64.b64encode(view[start:end]).decode(),
        "user_headers": headers_json(view[end : end + headers_bytes]),
    }
    return message, end + headers_bytes


def headers_json(block: memoryview) -> list[Json] | str:
    """Return a message's headers; in Base64 if the block cannot be read."""
    fields: list[Mapping[str, str]] = []
    pos = 0
    try:
        while pos < len(block):
            kind, size = HEADER_FIELD.unpack_from(block, pos)
            pos += HEADER_FIELD.size
            value = base64.b64encode(block[pos : pos + size]).decode()
            fields.append({"kind": HeaderKind(kind).name.lower(), "value": value})
            pos += size
        pairs = zip(fields[::2], fields[1::2], strict=True)
        return [{"key": key, "value": value} for key, value in pairs]
    except (struct.error, ValueError):
        return base64.b64encode(block).decode()
