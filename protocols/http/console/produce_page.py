"""The page that stores messages: new ones, or a copy of a message with changes or without."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from braidlog.protocols.http.console.inside import ApiError
from braidlog.protocols.http.console.message_pages import read_message
from braidlog.protocols.http.console.shown_messages import ReadMessage, content_bytes
from braidlog.protocols.http.console.visits import API, Page, PageRefused, Redirect, Visit
from braidlog.protocols.http.ids import read_id
from braidlog.protocols.http.management.messages import TopicDetail
from braidlog.protocols.http.pip64.messages import ProduceAnswer

REPEAT_MAX = 100  # Messages of a form; `braidlog produce` stores more.
# The forms of keys and values: text, no value, JSON by the topic's schema, any bytes.
KINDS = ("text", "null", "JSON", "base64")
RESENT_BYTES_MAX = 256 * 1024  # A larger value is not put into the form.


async def show(visit: Visit) -> Page:
    """The form; `?resend=PARTITION:OFFSET` fills in a stored message."""
    topic = await visit.api.get(f"{API}/topics/{visit.topic}", TopicDetail)
    filled = {"key": "", "key_kind": "null", "value": "", "value_kind": "text", "properties": ""}
    resend = visit.query("resend")
    left_out = 0
    if resend:
        partition, _, offset = resend.partition(":")
        message = await read_message(visit, partition, offset, is_exact=True)
        filled, left_out = _filled(message)
    partition, _, offset = visit.query("sent").partition(":")
    values = {
        "topic": topic.name,
        "partition_count": len(topic.partitions),
        "filled": filled,
        "kinds": KINDS,
        "resend": resend,
        "left_out": left_out,
        "repeat_max": REPEAT_MAX,
        "sent": [partition, offset] if partition.isdecimal() and offset.isdecimal() else None,
    }
    return Page("produce.html", values)


async def produce(visit: Visit) -> Redirect:
    """Store the messages of the form."""
    message: dict[str, Any] = _content(visit, "value", "encoding")
    message |= _content(visit, "key", "key_encoding")
    message["properties"] = _properties(visit.text("properties"))
    if visit.field("partition"):
        message["partition"] = visit.number("partition", 0)
    if visit.field("event_ms"):
        message["eventTime"] = visit.number("event_ms", 0)
    count = visit.number("repeat", 1)
    if not 1 <= count <= REPEAT_MAX:
        raise PageRefused(400, f"messages are stored 1 to {REPEAT_MAX} times at once")
    sent = await visit.api.call("POST", f"/topics/{visit.topic}", {"messages": [message] * count})
    return _stored(visit, sent)


async def copy(visit: Visit) -> Redirect:
    """Store an exact copy of a message: every byte of key, value and headers, but a new time."""
    partition, _, offset = visit.field("resend").partition(":")
    message = await read_message(visit, partition, offset, is_exact=True)
    fields = msgspec.to_builtins(message)
    fields["partition"] = int(partition)
    for name in ("publish_us", "publishTime", "deliver_at_us"):
        fields.pop(name, None)
    await visit.api.call("POST", f"{API}/topics/{visit.topic}/messages", {"messages": [fields]})
    return Redirect(f"{visit.topic_page}/messages", done="stored", partition=partition)


def _stored(visit: Visit, answer: bytes) -> Redirect:
    """Return to the form with the place of the first message. Raises ApiError."""
    first = msgspec.json.decode(answer, type=ProduceAnswer).messageIds[0]
    if first.messageId is None:
        raise ApiError(503, "", first.error or "the message was not stored")
    place = read_id(first.messageId)
    offset = place.entry + max(place.batch_index, 0)
    sent = f"{first.partition}:{offset}"
    return Redirect(f"{visit.topic_page}/produce", done="stored", sent=sent)


def _content(visit: Visit, name: str, encoding: str) -> dict[str, Any]:
    """Return the fields of a key or value. Raises PageRefused."""
    kind, text = visit.field(f"{name}_kind", "text"), visit.text(name)
    if kind == "null":
        return {name: None}
    if kind == "base64":
        return {name: "".join(text.split()), encoding: "base64"}
    if kind == "JSON":
        try:
            return {name: msgspec.Raw(msgspec.json.format(text.encode(), indent=0))}
        except msgspec.DecodeError as error:
            raise PageRefused(400, f"the {name} is not JSON: {error}") from None
    return {name: text}


def _properties(text: str) -> dict[str, str]:
    """Return the properties of lines such as `name=value`. Raises PageRefused."""
    properties: dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if not line.strip():
            continue
        if not equals or not name.strip():
            raise PageRefused(400, f"header {line[:40]!r}: expected NAME=VALUE")
        properties[name.strip()] = value
    return properties


def _filled(message: ReadMessage) -> tuple[dict[str, str], int]:
    """Return the form's fields for a copy, and the number of headers that the form cannot hold."""
    lines: list[str] = []
    left_out = 0
    for header in message.headers or ():
        is_text = header.encoding is None and header.name_encoding is None
        if is_text and header.kind == "string" and "\n" not in header.name + header.value:
            lines.append(f"{header.name}={header.value}")
        else:
            left_out += 1
    value, value_kind = _field(message.value, message.encoding)
    key, key_kind = _field(message.key, message.key_encoding)
    fields = {"value": value, "value_kind": value_kind, "key": key, "key_kind": key_kind}
    return fields | {"properties": "\n".join(lines)}, left_out


def _field(value: object, encoding: str | None) -> tuple[str, str]:
    """Return the text and kind of a key or value. Bytes that a form would change are base64."""
    data = content_bytes(value, encoding)
    if data is None:
        return "", "null"
    if len(data) > RESENT_BYTES_MAX:
        raise PageRefused(400, f"a value above {RESENT_BYTES_MAX} bytes does not fit a form")
    if encoding == "base64" or b"\r" in data or data[:1] == b"\n":
        return base64.b64encode(data).decode(), "base64"
    return data.decode(), "text"
