"""Names in paths and queries: topics, partitions, namespaces and groups. Knows no route."""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from typing import Literal
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from braidlog.protocols.http.errors import BAD_QUERY, INVALID_NAME, RequestRefused
from braidlog.storage.metadata.names import (
    InvalidTopicName,
    TopicName,
    check_topic_name,
    parse_topic,
    split_partition,
    valid_namespace,
)

NAMES_MAX = 1000  # Parsed topic names in the cache; a path has up to some KB.
Encoding = Literal["utf8", "base64"]  # Of a group's name.


def topic_name(request: Request) -> TopicName:
    """Return the topic that the path names. Raises RequestRefused, also for `x-partition-3`."""
    parts = request.path_params
    return _named_topic(parts["tenant"], parts["namespace"], parts["topic"])


@lru_cache(NAMES_MAX)
def _named_topic(*parts: str) -> TopicName:
    """Return the topic that the parts of a path name. Raises RequestRefused."""
    try:
        name = TopicName(*(unquote_to_bytes(part).decode() for part in parts))
        check_topic_name(name)
    except (UnicodeDecodeError, InvalidTopicName) as error:
        raise RequestRefused(INVALID_NAME, str(error)) from None
    return _no_partition(name)


def parsed_topic(text: str) -> TopicName:
    """Return a topic named in a query, as `t` or `tenant/namespace/t`. Raises RequestRefused."""
    try:
        return _no_partition(parse_topic(text))
    except InvalidTopicName as error:
        raise RequestRefused(INVALID_NAME, str(error)) from None


def _no_partition(name: TopicName) -> TopicName:
    if split_partition(name.topic) is not None:
        raise RequestRefused(INVALID_NAME, f"{name.topic!r} names a partition, not a topic")
    return name


def group_name(request: Request) -> bytes:
    """Return the group that the path names: any bytes, percent-encoded, or base64 with
    `encoding=base64`.

    Raises RequestRefused.
    """
    return decoded_group(request, path_bytes(request, "group"))


def decoded_group(request: Request, name: bytes) -> bytes:
    """Decode a group's name as the query's `encoding` says. Raises RequestRefused."""
    encoding = request.query_params.get("encoding", "utf8")
    if encoding == "utf8":
        return name
    if encoding != "base64":
        raise RequestRefused(BAD_QUERY, f"encoding is utf8 or base64, not {encoding!r}")
    try:
        return base64.b64decode(name, validate=True)
    except binascii.Error:
        raise RequestRefused(BAD_QUERY, "the group's name is not base64") from None


def group_text(name: bytes) -> tuple[str, Encoding]:
    """Return a group's name for JSON and the encoding: base64 if the name is not UTF-8."""
    try:
        return name.decode(), "utf8"
    except UnicodeDecodeError:
        return base64.b64encode(name).decode(), "base64"


def path_bytes(request: Request, part: str) -> bytes:
    """Return a part of the path, percent-decoded once."""
    return unquote_to_bytes(request.path_params[part])


# Paths of Pulsar's admin API.


def text_of(request: Request, part: str) -> str:
    """Return a part of the path as text. Raises RequestRefused."""
    try:
        return path_bytes(request, part).decode()
    except UnicodeDecodeError:
        raise RequestRefused(INVALID_NAME, f"the {part} in the path is not UTF-8") from None


def namespace_of(request: Request) -> tuple[str, str]:
    """Return tenant and namespace of the path. Raises RequestRefused."""
    tenant, namespace = text_of(request, "tenant"), text_of(request, "namespace")
    if not valid_namespace(tenant, namespace):
        raise RequestRefused(INVALID_NAME, f"{tenant}/{namespace} is not a namespace")
    return tenant, namespace


def name_of(request: Request) -> tuple[TopicName, int | None]:
    """Return the topic of the path, and the partition's number if the name has a number. Raises
    RequestRefused.
    """
    name = TopicName(*(text_of(request, part) for part in ("tenant", "namespace", "name")))
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        raise RequestRefused(INVALID_NAME, str(error)) from None
    split = split_partition(name.topic)
    if split is None:
        return name, None
    return TopicName(name.tenant, name.namespace, split[0]), split[1]
