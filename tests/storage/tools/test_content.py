import struct

import pytest

from braidlog.storage.formats.api import BatchFlag, BodyFormat
from braidlog.storage.formats.batch import BatchHeader
from braidlog.storage.formats.pulsar.entry_runs import PULSAR
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_named
from braidlog.storage.journal.log import pack_records
from braidlog.storage.tools.content import BadContent, check_content
from tests.storage.formats.pulsar.test_entry_runs import batch
from tests.storage.formats.pulsar.test_entry_runs import body as run_of


def header(body_format, count, **changes):
    fields = {
        "partition_id": 1,
        "base_offset": 10,
        "last_offset_delta": max(count, 1) - 1,
        "record_count": count,
        "durable_offset": 10,
        "append_us": 1,
        "body_format": body_format,
    }
    return BatchHeader(**fields | changes)


def check(head, body, positions=()):
    table = struct.pack(f"<{len(positions)}I", *positions)
    head.positions_bytes = len(table)
    return check_content(head, memoryview(table), memoryview(body))


def body_of(name, count=3, base=10):
    codec = codec_named(name)
    body = codec.encode([Record(base + n, 1, value=b"v") for n in range(count)], base)
    return codec.format, body, [pos for _, pos in codec.split(body, base)]


@pytest.mark.parametrize("name", ["plain", "kafka", "pulsar", "iggy"])
def test_a_valid_body_has_no_finding(name):
    body_format, body, positions = body_of(name)
    assert check(header(body_format, 3), body)
    assert check(header(body_format, 3), body, positions)


@pytest.mark.parametrize("name", ["plain", "kafka", "pulsar", "iggy"])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"last_offset_delta": 3, "record_count": 4}, "3 records in the body"),
        ({"record_count": 4}, "4 records on 3 offsets"),
        ({"durable_offset": 11}, "durable_offset 11"),
        ({"base_offset": 9, "durable_offset": 9}, "outside or out of order"),
        ({"base_offset": 12}, "outside or out of order"),
        ({"positions": (0, 1, 2)}, "positions table"),
    ],
)
def test_a_header_unlike_its_body_is_a_finding(name, changes, reason):
    if name in ("plain", "pulsar") and "base_offset" in changes:
        return  # Their offsets are relative to the batch: none can be wrong alone.
    body_format, body, _ = body_of(name)
    fields = {key: value for key, value in changes.items() if key != "positions"}
    with pytest.raises(BadContent, match=reason):
        check(header(body_format, 3, **fields), body, changes.get("positions", ()))


def test_descending_offsets_are_a_finding():
    body_format, body, _ = body_of("iggy", 1)
    twice = bytes(body) + bytes(body)[4:]
    with pytest.raises(BadContent, match="out of order"):
        check(header(body_format, 2), twice)


def test_invalid_bytes_are_a_finding():
    with pytest.raises(BadContent, match="not a body of format kafka"):
        check(header(BodyFormat.KAFKA, 1), b"nothing like it")


def test_gaps_have_no_content():
    gap = {"flags": BatchFlag.GAP}
    assert check(header(BodyFormat.GAP, 0, **gap), b"")
    for head, body in (
        (header(BodyFormat.GAP, 0, **gap), b"x"),
        (header(BodyFormat.GAP, 1, **gap), b""),
        (header(BodyFormat.GAP, 0), b""),
    ):
        with pytest.raises(BadContent, match="gap"):
            check(head, body)


def test_journal_records():
    body = pack_records([b"one", b""])
    assert check(header(BodyFormat.JOURNAL, 2), body)
    with pytest.raises(BadContent, match="2 records in the body"):
        check(header(BodyFormat.JOURNAL, 1), body)
    with pytest.raises(BadContent, match="cut short"):
        check(header(BodyFormat.JOURNAL, 2), body[:-1])


def test_unknown_formats_are_not_judged():
    assert not check(header(77, 1), b"anything")
    assert not check(header(BodyFormat.KAFKA, 1, body_version=2), b"anything")


def test_compacted_messages_of_a_pulsar_batch_are_not_counted():
    rest = PULSAR.without(bytes(run_of((batch(b"a", b"b", b"c"), 3))), 10, [11].__contains__)
    changes = {"last_offset_delta": 2, "flags": int(BatchFlag.COMPACTED)}
    assert check(header(BodyFormat.PULSAR, 2, **changes), rest.body)
    with pytest.raises(BadContent, match="2 records in the body, 3 in the header"):
        check(header(BodyFormat.PULSAR, 3, **changes), rest.body)
