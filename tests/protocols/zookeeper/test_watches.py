"""The books of all watches: limits, counts, and the paths that need a look from time to time."""

import pytest

from braidlog.broker.errors import LimitExceeded
from braidlog.protocols.zookeeper.messages import Event
from braidlog.protocols.zookeeper.watches import (
    ALL_WATCH_BYTES_MAX,
    WATCH_BYTES_MAX,
    Watches,
    WatchKind,
)


class ListedEvents:
    """A watcher that lists its events."""

    def __init__(self):
        self.watches, self.watch_bytes, self.events = set(), 0, []

    def send_event(self, event, path):
        self.events.append((event, path))


@pytest.fixture
def watches():
    return Watches(lambda path: path.startswith("/consumers"))


def counts(watches):
    return watches.count, watches.count_of_watchers, watches.path_bytes


def test_counts_follow_watches_that_are_set_fired_and_dropped(watches):
    first, second = ListedEvents(), ListedEvents()
    for watcher in (first, second):
        watches.add(WatchKind.DATA, "/a", watcher, "/a")
        watches.add(WatchKind.CHILDREN, "/a", watcher, "/a")
        watches.add(WatchKind.DATA, "/a", watcher, "/a")  # The same watch again.
    assert counts(watches) == (4, 2, 8)
    watches.deleted("/a")
    assert first.events == second.events == [(Event.DELETED, "/a")]
    assert counts(watches) == (0, 0, 0)
    watches.add(WatchKind.DATA, "/b", first, "/chroot/b")
    watches.drop(first)
    assert counts(watches) == (0, 0, 0)
    assert not first.watches


def test_only_watched_paths_of_virtual_nodes_are_looked_at(watches):
    watcher = ListedEvents()
    for path in ("/locks/a", "/consumers/g", "/consumers/g/ids"):
        watches.add(WatchKind.DATA, path, watcher, path)
        watches.add(WatchKind.CHILDREN, path, watcher, path)
    assert watches.virtual_paths == {"/consumers/g", "/consumers/g/ids"}
    watches.data_changed("/consumers/g")
    assert "/consumers/g" in watches.virtual_paths  # The watch on its children waits.
    watches.deleted("/consumers/g")
    assert watches.virtual_paths == {"/consumers/g/ids"}
    watches.drop(watcher)
    assert not watches.virtual_paths


def test_the_paths_of_all_watches_have_a_limit(watches):
    path = "/" + "x" * (WATCH_BYTES_MAX - 1)
    watchers = [ListedEvents() for _ in range(ALL_WATCH_BYTES_MAX // WATCH_BYTES_MAX)]
    for watcher in watchers:
        watches.add(WatchKind.DATA, path, watcher, path)
    late = ListedEvents()
    with pytest.raises(LimitExceeded, match="paths of all watches"):
        watches.add(WatchKind.DATA, "/a", late, "/a")
    watches.drop(watchers[0])
    watches.add(WatchKind.DATA, "/a", late, "/a")
