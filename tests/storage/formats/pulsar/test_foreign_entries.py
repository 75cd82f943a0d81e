"""Entries made in runs equal entries made separately."""

import random

import pytest
from hypothesis import given
from msgspec.structs import replace

from braidlog.storage.formats.pulsar.entry import record_to_entry
from braidlog.storage.formats.pulsar.foreign_entries import records_to_entries
from braidlog.storage.formats.record import Header, Record
from tests.storage.formats.strategies import QUICK, record_lists

APPEND_US = 1_700_000_000_000_000
ODD = [
    {"headers": [Header(b"h", b"1")]},
    {"event_us": APPEND_US},
    {"ordering_key": b""},
    {"schema_version": b"1"},
    {"value": None},
    {"key": b"\xff"},
    {"key": b"k" * 128},
    {"sequence_id": 5},
    {"sequence_id": -1},
    {"sequence_id": 2**64 - 1},
    {"producer_name": b"somebody"},
    {"publish_us": APPEND_US + 999},
    {"publish_us": APPEND_US + 1000},
    {"publish_us": -5000},
]


@QUICK
@given(record_lists())
def test_records_of_all_kinds(records):
    assert records_to_entries(records) == [record_to_entry(record) for record in records]


@pytest.mark.parametrize("first", [0, 100, (1 << 14) - 50, (1 << 35) - 50])
@pytest.mark.parametrize("keys", [None, b"", b"key", b"k" * 127])
def test_a_run_of_plain_records(first, keys):
    records = [
        Record(offset, APPEND_US, key=keys, value=b"v%d" % offset)
        for offset in range(first, first + 300)
    ]
    assert records_to_entries(records) == [record_to_entry(record) for record in records]


@pytest.mark.parametrize("seed", range(20))
def test_records_with_more_fields_among_plain_records(seed):
    rng = random.Random(seed)
    records = []
    for offset in range(1000, 1400):
        record = Record(offset, APPEND_US, key=rng.choice([None, b"k"]), value=rng.randbytes(9))
        if rng.random() < 0.15:
            record = replace(record, **rng.choice(ODD))
        records.append(record)
    expected = [record_to_entry(record) for record in records]
    assert records_to_entries(records) == expected, f"seed {seed}"
