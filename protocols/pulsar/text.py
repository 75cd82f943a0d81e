"""Checks once, when a command arrives, that its text fields are UTF-8.

protobuf takes any bytes for a proto2 string and then hands them out as bytes instead of text. What
is not UTF-8 cannot be a name and must not be stored or sent to other clients. Knows no command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.descriptor import Descriptor

if TYPE_CHECKING:
    from google.protobuf.message import Message


@dataclass(slots=True, frozen=True)
class TextField:
    """A field of a message that is text, or holds some."""

    name: str
    is_repeated: bool
    inner: tuple[TextField, ...]  # Text fields of the message in it; empty: it is text itself.


def text_fields(descriptor: object) -> tuple[TextField, ...]:
    """The fields of a message that are text or hold some; a message within its own kind (an id in
    an id) is skipped.
    """
    assert isinstance(descriptor, Descriptor)
    fields = []
    for field in descriptor.fields:
        if field.message_type is descriptor:
            continue
        if field.message_type is not None:
            inner = text_fields(field.message_type)
            if inner:
                fields.append(TextField(field.name, field.is_repeated, inner))
        elif field.type == field.TYPE_STRING:
            fields.append(TextField(field.name, field.is_repeated, ()))
    return tuple(fields)


def not_text(message: Message, fields: tuple[TextField, ...]) -> str:
    """The path of the first text that is not UTF-8, such as `schema.name`; empty if all is."""
    for field in fields:
        if field.is_repeated:
            values = getattr(message, field.name)
        elif message.HasField(field.name):
            values = (getattr(message, field.name),)
        else:
            continue
        for value in values:
            if field.inner:
                if place := not_text(value, field.inner):
                    return f"{field.name}.{place}"
            elif not isinstance(value, str):
                return field.name
    return ""
