"""Sessions by a clock of the test: they expire without a sign of life, and outlive a restart."""

from braidlog.broker.coordination.nodes import Nodes
from braidlog.protocols.zookeeper.sessions import LiveSessions
from tests.fake_clock import FakeClock
from tests.storage.metadata.memory_journal import MemoryJournal


class EndedHolder:
    peer = "127.0.0.1:1"

    def __init__(self):
        self.ended = []

    def end(self, reason):
        self.ended.append(reason)


def opened(journal, clock):
    nodes = Nodes(lambda: journal, report=lambda error: None)
    nodes.open()
    return LiveSessions(nodes, 2000, clock)


def test_a_session_expires_its_timeout_after_the_last_sign_of_life():
    clock = FakeClock(100.0)
    sessions = opened(MemoryJournal(), clock)
    live = sessions.begin(6000, EndedHolder())
    clock.now += 5
    live.heard(clock.now)
    clock.now += 5.9
    assert sessions.expired(clock.now) == []
    clock.now += 0.1
    assert sessions.expired(clock.now) == [live]
    sessions.end(live.session_id)
    assert sessions.resume(live.session_id, live.password, 6000, EndedHolder()) is None


def test_a_broker_that_stood_still_does_not_blame_its_clients():
    clock = FakeClock(100.0)
    sessions = opened(MemoryJournal(), clock)
    sessions.begin(4000, EndedHolder())
    due = clock.now + 0.5
    clock.now += 30
    assert sessions.expired(due) == []
    clock.now += 4
    assert len(sessions.expired(clock.now)) == 1


def test_sessions_outlive_a_restart_and_have_their_whole_timeout_again():
    clock, journal = FakeClock(100.0), MemoryJournal()
    live = opened(journal, clock).begin(4000, EndedHolder())
    clock.now += 1000
    sessions = opened(journal.reopened(), clock)
    assert sessions.expired(clock.now) == []
    assert sessions.resume(live.session_id, b"wrong", 4000, EndedHolder()) is None
    resumed = sessions.resume(live.session_id, live.password, 8000, EndedHolder())
    assert resumed.timeout_s == 8
    clock.now += 8
    assert sessions.expired(clock.now) == [resumed]


def test_a_session_that_moves_ends_the_connection_before():
    sessions = opened(MemoryJournal(), FakeClock(100.0))
    first, second = EndedHolder(), EndedHolder()
    live = sessions.begin(4000, first)
    moved = sessions.resume(live.session_id, live.password, 4000, second)
    assert first.ended
    assert not second.ended
    sessions.left(moved, first)  # The end of the earlier connection changes nothing.
    assert moved.holder is second


def test_a_client_that_waits_for_the_broker_does_not_expire():
    clock = FakeClock(100.0)
    sessions = opened(MemoryJournal(), clock)
    live = sessions.begin(4000, EndedHolder())
    live.is_served = True
    for _ in range(4):
        clock.now += 3
        assert sessions.expired(clock.now) == []
    live.is_served = False
    clock.now += 4
    assert sessions.expired(clock.now) == [live]


def test_a_request_of_a_client_that_has_left_keeps_no_session():
    clock = FakeClock(100.0)
    sessions, holder = opened(MemoryJournal(), clock), EndedHolder()
    live = sessions.begin(4000, holder)
    live.is_served = True
    sessions.left(live, holder)
    clock.now += 4
    assert sessions.expired(clock.now) == [live]
