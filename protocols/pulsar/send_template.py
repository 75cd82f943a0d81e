"""Takes SENDs in a row that differ only in sequence id and payload, without parsing them.

After a few such SENDs the next ones are predicted: the same command and metadata with the next
numbers. Bytes equal to the prediction need no parsing; anything else goes to `machine.py` and the
codec. Knows no
producer and no log. "Command Send" in Apache Pulsar's binary protocol document.
"""

import struct
from typing import Final, Self

from crc32c import crc32c

from protocols.pulsar.machine import FRAME_BYTES_MAX, SEND_TAGS
from storage.codecs.api import BatchFlag
from storage.codecs.pb.PulsarApi_pb2 import CommandSend
from storage.codecs.pb.PulsarEntry_pb2 import EntryMetadata
from storage.codecs.pulsar import SendInfo
from storage.codecs.pulsar_entry import CHECKSUM_MAGIC, read_metadata
from storage.codecs.varints import LOW_BITS, LOW_MASK, around, lows

NUMBER_MAX: Final = (1 << 64) - 1
CHECKED_POS: Final = 6  # In what follows a command: behind magic and checksum.
WITHOUT_TEMPLATE: Final = int(BatchFlag.CHUNK) | int(BatchFlag.MARKER)
_SIZE: Final = struct.Struct(">I")
_CHECKSUM: Final = struct.Struct(">2sI")


class SendTemplate:
    """Predicts the SENDs after one, as long as nothing but the numbers changes."""

    def __init__(self, command: CommandSend, metadata: EntryMetadata, send: SendInfo) -> None:
        """Keeps and changes `command` and `metadata`. Use `after`."""
        self.producer_id = command.producer_id
        self.sequence_id = command.sequence_id + 1  # Of the SEND that is looked for.
        self.send = send
        self.has_found = False  # Whether there ever was one.
        self._command = command
        self._metadata = metadata
        self._number = metadata.sequence_id + 1  # The metadata's own.
        self._blocks = (-1, -1)  # What is around both numbers is known for these upper bits.
        self._around_command = self._around_metadata = (b"", b"")

    @classmethod
    def after(cls, command: CommandSend, payload: memoryview, send: SendInfo) -> Self | None:
        """The template after this valid SEND; None if what follows cannot be predicted from it."""
        if command.HasField("highest_sequence_id"):
            return None
        metadata, _ = read_metadata(payload, check=False)
        if metadata.HasField("num_messages_in_batch") or send.flags & WITHOUT_TEMPLATE:
            return None
        return cls(command, metadata, send)

    def take(self, data: bytes, frames_max: int) -> tuple[list[bytes], int]:
        """What follows the commands of the SENDs that `data` begins with, as far as they are whole
        and alike; where the last one ends.

        `sequence_id` then is of the one that comes next.
        """
        payloads: list[bytes] = []
        pos, is_over = 0, False
        while len(payloads) < frames_max and not is_over:
            if max(self.sequence_id, self._number) > NUMBER_MAX:
                break
            found, pos, is_over = self._take_block(data, pos, frames_max - len(payloads))
            payloads += found
            self.sequence_id += len(found)
            self._number += len(found)
        self.has_found = self.has_found or bool(payloads)
        return payloads, pos

    def _take_block(self, data: bytes, pos: int, count: int) -> tuple[list[bytes], int, bool]:
        """The same as far as the upper bits of the numbers stay; True if there are no more."""
        sequence_id, number = self.sequence_id, self._number
        blocks = (sequence_id >> LOW_BITS, number >> LOW_BITS)
        if blocks != self._blocks:
            self._blocks = blocks
            self._around_command = around(self._command_bytes, sequence_id)
            self._around_metadata = around(self._metadata_bytes, number)
        command_head, command_tail = self._around_command
        metadata_head, metadata_tail = self._around_metadata
        command_size = len(command_head) + 1 + len(command_tail)
        rest_min = CHECKED_POS + len(metadata_head) + 1 + len(metadata_tail)
        size_at, checksum_of, is_at = _SIZE.unpack_from, _CHECKSUM.unpack_from, data.startswith
        first, metadata_first = sequence_id & LOW_MASK, number & LOW_MASK
        payloads: list[bytes] = []
        for command_low, metadata_low in zip(
            lows(sequence_id)[first : first + count],
            lows(number)[metadata_first : metadata_first + count],
            strict=False,
        ):  # hot: see make bench
            if not is_at(command_head + command_low + command_tail, pos + _SIZE.size):
                return payloads, pos, True
            rest_pos = pos + _SIZE.size + command_size
            end = pos + _SIZE.size + size_at(data, pos)[0]
            if (
                end > len(data)
                or end - rest_pos < rest_min
                or end - pos > FRAME_BYTES_MAX
                or not is_at(metadata_head + metadata_low + metadata_tail, rest_pos + CHECKED_POS)
            ):
                return payloads, pos, True
            rest = data[rest_pos:end]
            magic, checksum = checksum_of(rest)
            if magic != CHECKSUM_MAGIC or crc32c(rest[CHECKED_POS:]) != checksum:
                return payloads, pos, True
            payloads.append(rest)
            pos = end
        return payloads, pos, False

    def _command_bytes(self, sequence_id: int) -> bytes:
        """From the size of the command to its end."""
        self._command.sequence_id = sequence_id
        packed = self._command.SerializeToString()
        tags = SEND_TAGS + bytes((len(packed) & 0xFF,))  # `next_send` takes no longer ones.
        return _SIZE.pack(len(tags) + len(packed)) + tags + packed

    def _metadata_bytes(self, number: int) -> bytes:
        """From the size of the metadata to its end."""
        self._metadata.sequence_id = number
        packed = self._metadata.SerializeToString()
        return _SIZE.pack(len(packed)) + packed
