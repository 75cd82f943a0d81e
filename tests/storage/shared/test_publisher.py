"""A round counts once, whatever happens to its calls, and never after the session's end."""

from itertools import pairwise
from time import monotonic

import pytest

from braidlog.storage.errors import StoreUnanswered
from braidlog.storage.shared.layout import SliceEntry
from braidlog.storage.shared.ledger import (
    FORMAT,
    Cluster,
    Fenced,
    JournalRow,
    LedgerUnanswered,
    LedgerWentBack,
)
from braidlog.storage.shared.points import Backlog, SharedPoint, Slice
from braidlog.storage.shared.publisher import (
    ObjectForged,
    Publisher,
    RoundSettings,
    SessionIdentity,
    cut,
)
from braidlog.storage.shared.takeover import round_slices
from tests.storage.shared.memory import MemoryLedger, MemoryStore


class Bytes:
    """A local segment file."""

    def __init__(self, data):
        self.data = data

    def read_at(self, size, pos, *, wait=True):
        return self.data[pos : pos + size]


class ScriptedFaults:
    """Loses calls of a target by a script: `before` their effect, or `after`."""

    def __init__(self, target, error, **script):
        self._target, self._error, self._script = target, error, script

    def __getattr__(self, name):
        def call(*args, **kwargs):
            outcomes = self._script.get(name)
            outcome = outcomes.pop(0) if outcomes else "done"
            if outcome == "before":
                raise self._error("lost")
            result = getattr(self._target, name)(*args, **kwargs)
            if outcome == "after":
                raise self._error("lost")
            return result

        return call


class Quick(Publisher):
    """A publisher without waits between attempts."""

    def pause(self, seconds):
        super().pause(0)


def publisher_with(ledger=None, objects=None, **settings):
    base = MemoryLedger()
    base.init(Cluster("c", FORMAT, 4))
    session = base.join(1, {})
    base.take(session, [1])
    store = MemoryStore()
    publisher = Quick(
        ledger(base) if ledger else base,
        objects(store) if objects else store,
        SessionIdentity(session, 5),
        RoundSettings(**settings),
    )
    return publisher, base, store, session


def point(data=b"x" * 100, rows=()):
    entry = SliceEntry(1, 2, 0, 0, len(data), 0, 3, 0, 7)
    return SharedPoint((), slices=[Slice(entry, Bytes(data))] if data else [], rows=rows)


@pytest.mark.parametrize("calls", [["before"], ["after"], ["before", "after"], ["after"] * 3])
def test_a_put_or_statement_without_an_answer_is_done_once(calls):
    publisher, ledger, store, session = publisher_with(
        lambda base: ScriptedFaults(
            base, LedgerUnanswered, publish=[*calls], session_state=["before"]
        ),
        lambda base: ScriptedFaults(
            base, StoreUnanswered, put=[*calls], size=["before"], get=["after"]
        ),
    )
    first = point()
    publisher.keep([first])
    publisher.keep([point()])
    assert first.round == 1 and publisher.round == 2
    rows = ledger.contents([1]).rounds
    assert [row.round for row in rows] == [1, 2] and len(store.objects) == 2
    (located,) = round_slices(store, rows[0])
    assert located.entry.object_pos == 48 and located.entry.end_offset == 3
    assert ledger.session_state(session)[1] == 2


def test_rows_alone_put_no_object():
    publisher, ledger, store, _ = publisher_with()
    publisher.keep([point(b"", [JournalRow(0, 1, 2, b"row")])])
    assert not store.objects and ledger.journal(0, 2)[0].body == b"row"


def test_a_round_requested_twice_is_published_once():
    publisher, ledger, store, _ = publisher_with()
    points = [point(rows=[JournalRow(0, 1, 2, b"row")])]
    publisher.keep(points)
    publisher.keep(points)
    assert publisher.round == 1 and len(store.objects) == 1
    assert len(ledger.contents([1]).rounds) == 1


def test_no_round_counts_after_a_fence():
    publisher, ledger, _, session = publisher_with()
    ledger.leave(session)
    with pytest.raises(Fenced):
        publisher.keep([point()])
    assert publisher.round == 0 and not ledger.contents([1]).rounds


def test_an_outdated_ledger_is_noticed_before_any_answer():
    publisher, *_ = publisher_with()
    publisher.keep([point()])
    publisher.round = 5  # As if rounds up to 5 had been confirmed.
    with pytest.raises(LedgerWentBack):
        publisher.keep([point()])


def test_a_foreign_object_with_the_rounds_name_stops_the_session():
    publisher, _, store, session = publisher_with()
    store.put(f"rounds/{session}/{1:020d}.0", b"somebody else's")
    with pytest.raises(ObjectForged):
        publisher.keep([point()])


def test_an_ended_session_abandons_its_round():
    publisher, *_ = publisher_with(
        objects=lambda base: ScriptedFaults(base, StoreUnanswered, put=["before"] * 99)
    )
    publisher.end(Fenced("over"))
    with pytest.raises(Fenced):
        publisher.keep([point()])


def test_a_broker_without_the_store_does_not_stop_others():
    publisher, ledger, _, _ = publisher_with(
        objects=lambda base: ScriptedFaults(base, StoreUnanswered, put=["before"] * 99), stall_ms=-1
    )
    other = ledger.join(2, {})
    ledger.beat(other, store_ok=True)
    assert ledger.take(other, [1]) == {}
    publisher._settings = RoundSettings(stall_ms=1)
    publisher.pause = lambda seconds: waited(publisher)
    with pytest.raises(Fenced):
        publisher.keep([point()])
    assert ledger.take(other, [1]) == {1: 2}


def waited(publisher):
    """Wait for the next attempt: the stall ends as soon as the clock has moved."""
    begun = monotonic()
    while monotonic() - begun < 0.002:
        pass
    if publisher.ended:
        raise publisher.ended


def test_a_large_round_is_cut_into_parts_that_carry_the_whole_slices_offsets():
    data = bytes(range(256)) * 2
    publisher, ledger, store, _ = publisher_with(round_bytes=100)
    publisher.keep([point(data)])
    (row,) = ledger.contents([1]).rounds
    assert len(row.parts) == 6
    slices = round_slices(store, row)
    assert {(s.entry.first_offset, s.entry.end_offset) for s in slices} == {(0, 3)}
    joined = b"".join(
        store.get(s.object, s.entry.object_pos, s.entry.size)
        for s in sorted(slices, key=lambda s: s.entry.file_pos)
    )
    assert joined == data


def test_cuts_lose_and_double_no_byte():
    entries = [SliceEntry(1, n, 0, 10, size, 0, 1, 0, 0) for n, size in enumerate((5, 30, 1, 64))]
    parts = list(cut([Slice(entry, None) for entry in entries], 10))
    assert all(sum(piece.entry.size for piece in part) == 10 for part in parts)
    for entry in entries:
        mine = [s.entry for p in parts for s in p if s.entry.partition_id == entry.partition_id]
        assert sum(piece.size for piece in mine) == entry.size
        assert mine[0].file_pos == 10
        assert all(a.file_end == b.file_pos for a, b in pairwise(mine))


def test_only_rounds_with_records_are_paced():
    publisher, *_ = publisher_with(round_ms=60_000)

    class NoLog:
        has_records = True

    assert publisher.wait_s([NoLog()]) == 0.0
    publisher.keep([point()])
    assert 50 < publisher.wait_s([object(), NoLog()]) <= 60
    assert publisher.wait_s([object()]) == 0.0


def test_a_full_backlog_is_reported_and_refuses():
    calls = []
    backlog = Backlog(100, 300)
    backlog.call_when_full(lambda: calls.append(1))
    backlog.appended(99)
    assert not calls and not backlog.is_full
    backlog.appended(1)
    backlog.appended(150)
    assert calls == [1]
    backlog.begun(250)
    backlog.appended(60)
    assert backlog.is_full and backlog.bytes == 310
    backlog.ended(250)
    assert not backlog.is_full and backlog.bytes == 60
