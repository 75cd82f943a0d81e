"""Produced sets of every format with another compression, and with the time of the append."""

import pytest

from braidlog.storage.errors import CorruptBody, RecordTooLarge, TimeOutOfRange
from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.kafka.prepare import SetLimits
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES, prepare, refs
from braidlog.storage.formats.kafka.rewriting import CODECS, recompressed, stamp_times
from tests.protocols.kafka.frames import message_set
from tests.storage.formats.kafka.test_record_batches import PACK, batch, packed, timed

LIMIT = 1 << 20
LATE_MS = 1_800_000_000_000


def changed(sent: bytes, kind: str, *, append_times: bool = False) -> bytearray:
    limits = SetLimits(LIMIT, LIMIT, LIMIT)
    return recompressed(memoryview(sent), limits, kind, append_times=append_times)


@pytest.mark.parametrize("sent_codec", range(5))
@pytest.mark.parametrize("kind", ["producer", *CODECS])
def test_a_batch_gets_the_topics_compression(sent_codec: int, kind: str) -> None:
    sent = packed(sent_codec)
    (ref,) = refs(rewritten := changed(sent, kind))
    assert ref.attributes & 7 == CODECS.get(kind, sent_codec)
    assert KAFKA_BATCHES.decode(rewritten, 0, 9).records == [
        *KAFKA_BATCHES.decode(prepare(sent, 0, message_bytes_max=LIMIT).body, 0, 9).records
    ]
    if ref.attributes & 7 == sent_codec:
        assert bytes(rewritten)[16:] == sent[16:]


def test_a_producers_sequence_stays() -> None:
    sent = batch(packed(0)[61:], 2, pid=7, epoch=1, seq=5)
    (ref,) = refs(changed(sent, "zstd"))
    assert (ref.producer_id, ref.producer_epoch, ref.first_sequence, ref.count) == (7, 1, 5, 2)


@pytest.mark.parametrize(
    ("sent", "times"),
    [(message_set(b"a", b"b"), [None, None]), (timed(b"a", 1000), [1_000_000])],
)
def test_messages_of_older_formats_become_a_batch(sent: bytes, times: list[int | None]) -> None:
    for kind in ("producer", "gzip"):
        records = KAFKA_BATCHES.decode(changed(sent, kind), 0, 9).records
        assert [record.publish_us for record in records] == times
        assert [record.value for record in records] == [b"a", b"b"][: len(times)]


def test_stamped_batches_have_the_time_of_the_append() -> None:
    for codec in range(5):
        rewritten = changed(packed(codec) + packed(0), "producer", append_times=True)
        stamp_times(rewritten, LATE_MS)
        prepared = prepare(rewritten, 10, message_bytes_max=LIMIT)
        assert prepared.info.first_publish_us == prepared.info.max_publish_us == LATE_MS * 1000
        records = KAFKA_BATCHES.decode(prepared.body, 10, 9).records
        assert {record.publish_us for record in records} == {LATE_MS * 1000}
        assert [record.offset for record in records] == [10, 11, 12, 13]


def test_a_producer_must_not_claim_the_time_of_an_append() -> None:
    claimed = batch(packed(0)[61:], 2, attributes=8, max_ms=5)
    with pytest.raises(TimeOutOfRange, match="LogAppendTime"):
        changed(claimed, "producer", append_times=True)
    prepared = prepare(claimed, 0, message_bytes_max=LIMIT)
    assert (prepared.info.first_publish_us, prepared.info.max_publish_us) == (5000, 5000)
    assert KAFKA_BATCHES.inspect(prepared.body) == prepared.info


def test_unsound_sets_are_refused() -> None:
    broken = bytearray(packed(1))
    broken[-1] ^= 1
    with pytest.raises(CorruptBody):
        changed(bytes(broken), "zstd")
    bomb = batch(PACK[1](bytes(LIMIT + 1)), 1, attributes=1)
    with pytest.raises(RecordTooLarge):
        changed(bomb, "zstd")


@pytest.mark.parametrize("time_ms", [2**62, -(2**62), 2**63 - 1])
def test_times_beyond_the_range_of_the_log_are_refused(time_ms: int) -> None:
    for fields in ({"base_ms": time_ms}, {"max_ms": time_ms}):
        sent = batch(packed(0)[61:], 2, **fields)
        with pytest.raises(TimeOutOfRange):
            prepare(bytearray(sent), 0, message_bytes_max=LIMIT)
    with pytest.raises(TimeOutOfRange):
        changed(timed(b"a", time_ms), "producer")


def test_flags_follow_the_new_compression() -> None:
    rewritten = changed(packed(0), "lz4")
    assert prepare(rewritten, 0, message_bytes_max=LIMIT).info.flags == BatchFlag.COMPRESSED
