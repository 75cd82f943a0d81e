"""Records of HTTP's producers as a body in parts."""

from braidlog.storage.formats.api import BatchFlag
from braidlog.storage.formats.plain.codec import PLAIN
from braidlog.storage.formats.plain.prepare import prepare
from braidlog.storage.formats.record import Record


def records(count: int, **fields: object) -> list[Record]:
    return [Record(at, 0, 6_000, value=b"%d" % at, **fields) for at in range(count)]


def test_the_parts_are_one_body() -> None:
    sent = records(7)
    draft = prepare(sent, 3)
    assert draft.body_format == PLAIN.format
    parts = list(draft.parts)
    assert len(parts) == 3
    assert b"".join(parts) == PLAIN.encode(sent, 0)
    assert draft.info == PLAIN.inspect(b"".join(parts))
    assert draft.info.record_count == 7


def test_a_part_is_made_when_it_is_asked_for() -> None:
    sent = records(2)
    parts = prepare(sent, 1).parts
    next(parts)
    sent[1].value = b"changed"
    assert b"changed" in next(parts)


def test_a_record_with_a_delivery_time_delays_the_batch() -> None:
    sent = [*records(2), Record(2, 0, 6_000, deliver_at_us=9)]
    assert prepare(sent, 9).info.flags == BatchFlag.DELAYED
