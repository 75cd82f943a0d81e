"""The words of docs/mapping.md match the functions that check the broker."""

import random

import pytest
from msgspec.structs import replace

from braidlog.storage.formats.record import Header, HeaderKind, Record
from conformance.mapping import rules
from conformance.mapping.__main__ import PAGE
from conformance.mapping.page import renewed
from conformance.mapping.rules import FIELDS, READS, WRITES
from conformance.mapping.views import SEES
from conformance.mapping.views import WRITES as SAY
from tests.conformance.mapping import awkward

NUMBER = Header(b"n", bytes(4), HeaderKind.INT32)
FULL = Record(
    7,
    2_000_000,
    publish_us=5_000_000,
    event_us=6_000_000,
    key=b"k",
    value=b"v",
    headers=[Header(b"a", b"1"), NUMBER],
    ordering_key=b"o",
    producer_name=b"p",
    sequence_id=3,
    message_id=9,
    schema_version=b"s",
    deliver_at_us=8_000_000,
)
OTHER = {
    rules.KEY: {"key": b"K"},
    rules.VALUE: {"value": b"V"},
    rules.HEADERS: {"headers": [Header(b"b", b"1"), NUMBER]},
    rules.KINDS: {"headers": [Header(b"a", b"1"), Header(b"n", bytes(4), HeaderKind.RAW)]},
    rules.PUBLISH: {"publish_us": 15_000_000},
    rules.APPEND: {"append_us": 12_000_000, "publish_us": None},
    rules.EVENT: {"event_us": 16_000_000},
    rules.DELIVERY: {"deliver_at_us": 18_000_000},
    rules.ORDERING_KEY: {"ordering_key": b"O"},
    rules.PRODUCER: {"producer_name": b"P"},
    rules.SEQUENCE: {"sequence_id": 13},
    rules.MESSAGE_ID: {"message_id": 19},
    rules.SCHEMA: {"schema_version": b"S"},
}
PLACES = {"offset", "entryId"}
# Shown beside another field; needs a topic with schemas (tests/protocols/http/values).
BESIDES = {"null_value", ("rest", "headers")}
ELSEWHERE = {"rest": {"schema_version"}}


def test_the_page_matches_the_rules():
    page = PAGE.read_text()
    assert renewed(page) == page, "python -m conformance.mapping --write"


@pytest.mark.parametrize("reader", READS)
def test_every_visible_field_has_a_rule(reader):
    named = {rule.seen_as for rule in READS[reader].values()} - ELSEWHERE.get(reader, set())
    seen = set(SEES[reader](FULL)) - PLACES
    assert {
        field for field in seen if field not in BESIDES and (reader, field) not in BESIDES
    } == named


@pytest.mark.parametrize("reader", READS)
@pytest.mark.parametrize("field", FIELDS)
def test_a_field_appears_exactly_at_the_place_of_its_rule(reader, field):
    base = replace(FULL, publish_us=None) if field == rules.APPEND else FULL
    before, after = SEES[reader](base), SEES[reader](replace(base, **OTHER[field]))
    changed = {name for name in before if before[name] != after[name]}
    rule = READS[reader].get(field)
    if rule is None or rule.seen_as in ELSEWHERE.get(reader, ()):
        assert changed == set()
        return
    assert rule.seen_as in changed
    follows = {"timestamp", "origin_timestamp"} if field == rules.APPEND else set()
    assert changed <= {rule.seen_as} | follows


@pytest.mark.parametrize("writer", WRITES)
@pytest.mark.parametrize("field", FIELDS)
def test_a_writer_has_the_fields_of_its_rules(writer, field):
    if (writer, field) == ("rest", rules.SCHEMA):
        return  # Needs a topic with schemas.
    base = replace(FULL, publish_us=None) if field == rules.APPEND else FULL
    changed = SAY[writer](base) != SAY[writer](replace(base, **OTHER[field]))
    assert changed == (field in WRITES[writer])


def test_awkward_records_cover_all_awkward_values():
    rng = random.Random(1)
    records = awkward.records(rng, 2000)
    assert {record.publish_us for record in records} == set(awkward.TIMES)
    assert {record.value for record in records} == set(awkward.VALUES)
    names = [[h.name for h in record.headers] for record in records]
    assert any(len(set(record_names)) < len(record_names) for record_names in names)
    assert {h.kind for record in records for h in record.headers} == set(awkward.KINDS)
