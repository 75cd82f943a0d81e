"""Message ids as text: base64 of the MessageIdData that Pulsar's clients serialize.

Knows no topic and no log; `broker/reading/entries.py` resolves an id to an offset.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import MessageIdData

NONE = -1  # A partition or batch index that is absent.
ID_TEXT_MAX = 256  # Characters; ids of Pulsar's clients have some twenty, ids of chunks some sixty.
INT64_MAX = 2**63 - 1

_STANDARD = str.maketrans("-_ ", "+/+")  # A `+` of a query string arrives as a blank.


class BadMessageId(ValueError):
    """Text that is not a message id."""


@dataclass(slots=True, frozen=True)
class MessageId:
    """The place of a record in Pulsar's numbers; -1 for an absent partition or batch index."""

    ledger: int
    entry: int
    partition: int = NONE
    batch_index: int = NONE


def write_id(message_id: MessageId) -> str:
    """Return the id as text for clients. Absent fields are omitted, as Pulsar's clients do."""
    data = MessageIdData(ledgerId=message_id.ledger, entryId=message_id.entry)
    if message_id.partition >= 0:
        data.partition = message_id.partition
    if message_id.batch_index >= 0:
        data.batch_index = message_id.batch_index
    return base64.b64encode(data.SerializeToString()).decode("ascii")


class EntryIds:
    """Writes the ids of many entries of a ledger, each in a quarter of the time of `write_id`."""

    def __init__(self, ledger: int, partition: int) -> None:
        """`partition` is NONE for a topic without partitions."""
        self._data = MessageIdData(ledgerId=ledger, entryId=0)
        if partition >= 0:
            self._data.partition = partition

    def write(self, entry: int, batch_index: int = NONE) -> str:
        """Return the id of an entry, or of a message in it, as text for clients."""
        self._data.entryId = entry
        if batch_index >= 0:
            self._data.batch_index = batch_index
        elif self._data.batch_index != NONE:
            self._data.ClearField("batch_index")
        packed = self._data.SerializeToString()
        return binascii.b2a_base64(packed, newline=False).decode("ascii")


def read_id(text: str) -> MessageId:
    """Read an id as clients send it: either alphabet, with or without padding or other fields.

    Raises BadMessageId.
    """
    if not text or len(text) > ID_TEXT_MAX:
        raise BadMessageId("a message id is base64 of 1 to 256 characters")
    standard = text.translate(_STANDARD).rstrip("=")
    try:
        packed = base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
        data = MessageIdData.FromString(packed)
    except (binascii.Error, ValueError, DecodeError):
        raise BadMessageId(f"{text!r} is not a message id") from None
    if not (data.HasField("ledgerId") and data.HasField("entryId")):
        raise BadMessageId(f"{text!r} is not a message id: ledger or entry is missing")
    if data.ledgerId > INT64_MAX or data.entryId > INT64_MAX:
        raise BadMessageId(f"{text!r} is not a message id of a stored message")
    return MessageId(
        data.ledgerId,
        data.entryId,
        data.partition if data.HasField("partition") and data.partition >= 0 else NONE,
        data.batch_index if data.HasField("batch_index") and data.batch_index >= 0 else NONE,
    )
