"""Bodies of every format, made from records with any fields: start and end of reads.

`tests/conformance/mapping/` checks the fields.
"""

import pytest
from hypothesis import given

from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_named
from conformance.mapping.views import SEES
from tests.storage.formats.strategies import QUICK, record_lists

NAMES = {"kafka": "kafka-0", "kafka_batches": "kafka-2", "pulsar": "pulsar"}
NAMES |= {"iggy": "iggy", "iggy_typed": "iggy-typed", "plain": "rest"}


@pytest.mark.parametrize("name", NAMES)
@QUICK
@given(records=record_lists())
def test_a_format_carries_the_records_of_its_readers(name: str, records: list[Record]) -> None:
    codec = codec_named(name)
    assert [codec.carries(record) for record in records] == [
        is_carried(name, record) for record in records
    ]


def is_carried(name: str, record: Record) -> bool:
    return SEES[NAMES[name]](record) is not None


@pytest.mark.parametrize("name", NAMES)
@QUICK
@given(records=record_lists())
def test_reads_begin_and_end_at_the_requested_offsets(name: str, records: list[Record]) -> None:
    codec = codec_named(name)
    carried = [record for record in records if is_carried(name, record)]
    if not carried:
        return
    base_offset = carried[0].offset
    body = codec.encode(carried, base_offset)
    whole = codec.decode(body, base_offset, 7).records
    for place, record in enumerate(carried):
        rest = codec.decode(body, base_offset, 7, start_offset=record.offset)
        assert rest.records == whole[place:]
        first = codec.decode(body, base_offset, 7, records_max=place + 1)
        assert first.records == whole[: place + 1]
        assert first.next_offset == record.offset + 1
    assert codec.decode(body, base_offset, 7, start_offset=carried[-1].offset + 1).records == []


@pytest.mark.parametrize("name", [name for name in NAMES if name != "kafka_batches"])
@QUICK
@given(records=record_lists())
def test_positions_equal_those_of_the_records(name: str, records: list[Record]) -> None:
    codec = codec_named(name)
    carried = [record for record in records if is_carried(name, record)]
    if not carried:
        return
    base_offset = carried[0].offset
    body = codec.encode(carried, base_offset)
    starts = codec.split(body, base_offset)
    assert [offset for offset, _ in starts] == [record.offset for record in carried]
    sizes = [len(codec.encode([r], base_offset)) - starts[0][1] for r in carried]
    ends = [pos for _, pos in starts[1:]] + [len(body)]
    assert [end - pos for (_, pos), end in zip(starts, ends, strict=True)] == sizes
    assert bytes(codec.readable(body)) == body[starts[0][1] :]
    assert codec.inspect(body).record_count == len(carried)
