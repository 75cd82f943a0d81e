"""Pulsar's recorded frames pass through the generated classes without a changed byte."""

import struct

import pytest
from google.protobuf import descriptor

from braidlog.storage.formats.pulsar.pb import PulsarApi_pb2, PulsarEntry_pb2
from tests.storage.formats.vectors import rows

FRAMES = [
    pytest.param(bytes.fromhex(row[2]), id=f"{name[7:-4]}-{row[0]}")
    for name in ("golden-frames.tsv", "golden-answers.tsv")
    for row in rows("pulsar", name)
    if row[0] != "name"
]


def pieces(frame: bytes) -> tuple[bytes, bytes]:
    """Return command and metadata of a frame."""
    total, size = struct.unpack_from(">II", frame)
    assert total + 4 == len(frame)
    rest = frame[8 + size :]
    if rest[:2] == b"\x0e\x02":
        rest = rest[6 + struct.unpack_from(">I", rest, 2)[0] :]
    if rest[:2] == b"\x0e\x01":
        rest = rest[6:]
    metadata = rest[4 : 4 + struct.unpack_from(">I", rest)[0]] if rest else b""
    return frame[8 : 8 + size], metadata


@pytest.mark.parametrize("frame", FRAMES)
def test_recorded_commands_and_metadata_serialise_to_the_same_bytes(frame: bytes) -> None:
    command, metadata = pieces(frame)
    assert PulsarApi_pb2.BaseCommand.FromString(command).SerializeToString() == command
    if metadata:
        parsed = PulsarApi_pb2.MessageMetadata.FromString(metadata)
        assert parsed.SerializeToString() == metadata


def test_all_63_frames_of_the_client_are_covered() -> None:
    assert len([row for row in rows("pulsar", "golden-frames.tsv") if row[0] != "name"]) == 63


WIRE = {
    descriptor.FieldDescriptor.TYPE_STRING: "bytes",
    descriptor.FieldDescriptor.TYPE_BYTES: "bytes",
    descriptor.FieldDescriptor.TYPE_MESSAGE: "bytes",
    descriptor.FieldDescriptor.TYPE_ENUM: "varint",
    descriptor.FieldDescriptor.TYPE_INT32: "varint",
    descriptor.FieldDescriptor.TYPE_INT64: "varint",
    descriptor.FieldDescriptor.TYPE_UINT32: "varint",
    descriptor.FieldDescriptor.TYPE_UINT64: "varint",
    descriptor.FieldDescriptor.TYPE_BOOL: "varint",
}


@pytest.mark.parametrize(
    ("ours", "pulsars"),
    [
        (PulsarEntry_pb2.EntryMetadata, PulsarApi_pb2.MessageMetadata),
        (PulsarEntry_pb2.BatchedMetadata, PulsarApi_pb2.SingleMessageMetadata),
        (PulsarEntry_pb2.Property, PulsarApi_pb2.KeyValue),
    ],
)
def test_the_view_of_stored_metadata_has_pulsars_numbers_names_and_wire_types(
    ours: type, pulsars: type
) -> None:
    for field in ours.DESCRIPTOR.fields:
        twin = pulsars.DESCRIPTOR.fields_by_number[field.number]
        assert (field.name, WIRE[field.type]) == (twin.name, WIRE[twin.type])
        assert field.default_value == twin.default_value or field.type != twin.type
