"""Records with every possible field, for hypothesis."""

from hypothesis import settings
from hypothesis import strategies as st

from braidlog.storage.formats.record import Chunk, Header, HeaderKind, Record

# Enough for each kind of field, in a quarter of a second; a busy machine is no failure.
QUICK = settings(max_examples=40, deadline=None)

# Before 1970, after 1970, and as late as the log can hold.
TIMES = st.integers(-5_000, (1 << 63) - 1)
SMALL = st.binary(max_size=12)
TEXTS = st.text(max_size=6).map(str.encode) | SMALL | st.binary(min_size=254, max_size=257)
OPTIONAL = st.none() | SMALL
KINDS = st.sampled_from([int(kind) for kind in HeaderKind])
NUMBERS = st.sampled_from([1, 2, 4, 8, 16]).flatmap(lambda n: st.binary(min_size=n, max_size=n))

HEADERS = st.lists(st.builds(Header, TEXTS, TEXTS | NUMBERS, KINDS), max_size=4)

CHUNKS = st.builds(
    Chunk,
    uuid=SMALL,
    chunk_id=st.integers(0, 9),
    chunk_count=st.integers(2, 10),
    total_bytes=st.integers(0, 2**31 - 1),
    compression=st.just(0),
)

RECORDS = st.builds(
    Record,
    offset=st.just(0),
    append_us=st.just(0),
    publish_us=st.none() | TIMES,
    event_us=st.none() | TIMES,
    key=OPTIONAL | TEXTS,
    value=OPTIONAL | TEXTS,
    headers=HEADERS,
    ordering_key=OPTIONAL,
    producer_name=st.none() | TEXTS,
    sequence_id=st.none() | st.integers(0, 2**64 - 1),
    message_id=st.integers(0, 2**128 - 1),
    schema_version=OPTIONAL,
    chunk=st.none() | CHUNKS,
    deliver_at_us=st.none() | TIMES,
)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Draw records of a batch: ascending offsets with gaps, a common append time."""
    records = draw(st.lists(RECORDS, min_size=1, max_size=5))
    offset = draw(st.integers(0, 1 << 40))
    append_us = draw(st.integers(0, (1 << 62)))
    for record in records:
        record.offset = offset
        record.append_us = append_us
        offset += draw(st.integers(1, 3))
    return records
