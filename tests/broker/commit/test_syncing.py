"""The syncs of a round: few files by the queue, otherwise in the thread, and the effect of a
refusal or a failure of the queue.
"""

import errno
import os
import select
import threading

import pytest

from braidlog.broker.commit.syncing import RoundSyncer
from braidlog.storage.errors import StorageFailed
from braidlog.storage.log.committer import Committer, Round, SyncPoint
from braidlog.storage.log.sync_queue import SYNCS_MAX
from tests.waiting import HANG_S


class OneFile:
    def __init__(self, number):
        self.path = f"{number}.log"
        self.fd = 1000 + number
        self.threads = []

    def datasync(self):
        self.threads.append(threading.current_thread().name)


class HeldQueue:
    """A queue that takes `takes` files and finishes when a test decides."""

    def __init__(self, takes=SYNCS_MAX):
        self.takes = takes
        self.fds = []
        self.over = []
        self.at_close = 0

    def sync_queue(self, eventfd):
        self.eventfd = eventfd
        return self

    syncs_all_at_once = False

    def submit(self, files):
        self.fds += [fd for _, fd in files[: self.takes]]
        self.under_way = [path for path, _ in files[: self.takes]]
        return len(self.under_way)

    def end_one(self, number=0):
        self.over.append((self.under_way.pop(0), number))
        os.eventfd_write(self.eventfd, 1)

    def results(self):
        over, self.over = self.over, []
        return over

    def close(self, seconds):
        """End the pending syncs with a success, or as a test decides."""
        for path in getattr(self, "under_way", ()):
            self.over.append((path, self.at_close))
        return True


def round_of(files, folders=()):
    return Round(1, [(None, SyncPoint([file], folders)) for file in files])


def make(queue):
    return RoundSyncer(Committer(queue))


def wait(syncer):
    assert select.select([syncer.fd], [], [], HANG_S)[0]


def test_few_files_finish_with_the_last_without_a_thread():
    queue, files = HeldQueue(), [OneFile(number) for number in range(3)]
    syncer = make(queue)
    syncer.start(round_of(files))
    assert queue.fds == [1000, 1001, 1002]
    assert not syncer.collect()
    queue.end_one()
    queue.end_one()
    assert not syncer.collect()
    queue.end_one()
    assert syncer.collect()
    assert not any(file.threads for file in files)
    syncer.close()


@pytest.mark.parametrize("case", ["many", "folders", "no queue"])
def test_other_rounds_are_synced_in_the_thread(case):
    queue = HeldQueue()
    if case == "no queue":
        queue.sync_queue = lambda eventfd: None
    files = [OneFile(number) for number in range(SYNCS_MAX + 1 if case == "many" else 2)]
    syncer = make(queue)
    folders = ("folder",) if case == "folders" else ()
    queue.sync_folder = lambda path: None
    syncer.start(round_of(files, folders))
    wait(syncer)
    assert syncer.collect()
    assert [file.threads for file in files] == [["braidlog-sync"]] * len(files)
    assert queue.fds == []
    syncer.close()


def test_after_a_refusal_of_the_queue_the_thread_syncs_everything():
    queue, files = HeldQueue(takes=1), [OneFile(0), OneFile(1)]
    syncer = make(queue)
    syncer.start(round_of(files))
    wait(syncer)
    assert not syncer.collect()  # A file is still pending in the queue.
    queue.end_one()
    assert syncer.collect()
    syncer.start(round_of(files))
    wait(syncer)
    assert syncer.collect()
    assert [len(file.threads) for file in files] == [2, 2]
    assert queue.fds == [1000]
    syncer.close()


@pytest.mark.parametrize("takes", [1, 2])
def test_a_failure_in_the_queue_is_final_without_an_error_in_the_thread(takes):
    """The kernel reports a write error once, to the first sync."""
    queue = HeldQueue(takes)
    committer = Committer(queue)
    syncer = RoundSyncer(committer)
    syncer.start(round_of([OneFile(0), OneFile(1)]))
    queue.end_one(errno.EIO)
    if takes == 2:
        queue.end_one()
    with pytest.raises(StorageFailed, match=r"cannot sync 0\.log: Input/output error"):
        while not syncer.collect():
            wait(syncer)
    with pytest.raises(StorageFailed):
        committer.begin()
    syncer.close()


def test_a_failure_of_a_pending_sync_at_the_end_is_final_too():
    """A second sync of the same files would succeed: the first sync had the error."""
    queue = HeldQueue()
    queue.at_close = errno.EIO
    committer = Committer(queue)
    syncer = RoundSyncer(committer)
    syncer.start(round_of([OneFile(0)]))
    syncer.close()
    with pytest.raises(StorageFailed, match=r"cannot sync 0\.log: Input/output error"):
        committer.commit()


def test_after_a_sync_that_does_not_end_at_the_stop_no_other_sync_counts():
    """The sync under way may take the error, and the next sync of the same file would succeed."""
    queue, file = HeldQueue(), OneFile(0)
    queue.close = lambda seconds: False
    member = OneMember(SyncPoint([file]))
    committer = Committer(queue)
    committer.mark(member)
    syncer = RoundSyncer(committer)
    syncer.start(committer.begin())
    syncer.close()
    with pytest.raises(StorageFailed, match="a sync did not end within"):
        committer.commit()
    assert not file.threads and not member.finished
    os.close(syncer.fd)


class OneMember:
    """A member of a single round."""

    def __init__(self, point):
        self.point = point
        self.finished = False

    def begin_sync(self):
        return self.point

    def finish_sync(self, point):
        self.finished = True
