"""Read-ahead of a start: every folder is returned in order; folders are prefetched only from a
disk.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from braidlog.storage.log.start_prefetch import (
    AHEAD_FOLDERS,
    COLD_BLOCKS,
    LOOK_FOLDERS,
    SHARE_FOLDERS,
    Fetcher,
    read_ahead,
)
from tests.waiting import until_seen

FOLDERS = [str(number) for number in range(5 * AHEAD_FOLDERS + 7)]


class UnreadDisk:
    """A caller's reads, with `blocks_a_folder` disk blocks for each folder that was not prefetched.

    Prefetches are recorded, and end at once.
    """

    def __init__(self, blocks_a_folder):
        self.blocks_a_folder = blocks_a_folder
        self.blocks = 0
        self.fetched = set()
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)

    def fetch(self, folders):
        with self.lock:
            assert not self.fetched.intersection(folders)
            self.fetched.update(folders)
            self.changed.notify_all()
        return self.blocks_a_folder * len(folders)

    def open(self, folder):
        with self.lock:
            if folder not in self.fetched:
                self.blocks += self.blocks_a_folder

    def read(self):
        return self.blocks

    def wait_for(self, count):
        with self.lock:
            assert self.changed.wait_for(lambda: len(self.fetched) >= count, timeout=60)


def opened(disk, folders):
    seen = []
    for folder in read_ahead(folders, fetch=disk.fetch, blocks_read=disk.read):
        seen.append(folder)
        disk.open(folder)
    return seen


def test_from_memory_nothing_is_prefetched():
    disk = UnreadDisk(0)
    assert opened(disk, FOLDERS) == FOLDERS
    assert not disk.fetched


def test_a_few_blocks_a_folder_are_no_cold_disk():
    disk = UnreadDisk(COLD_BLOCKS - 1)
    assert opened(disk, FOLDERS) == FOLDERS
    assert not disk.fetched


def test_from_a_disk_the_next_folders_are_prefetched_once_in_order():
    disk, seen = UnreadDisk(40), []
    for folder in read_ahead(FOLDERS, fetch=disk.fetch, blocks_read=disk.read):
        seen.append(folder)
        disk.open(folder)
        if len(seen) == LOOK_FOLDERS + 1:  # After the first check that sees a cold disk.
            disk.wait_for(AHEAD_FOLDERS)
    assert seen == FOLDERS
    assert not disk.fetched.intersection(FOLDERS[:LOOK_FOLDERS])


def test_only_the_next_folders_are_prefetched():
    disk = UnreadDisk(40)
    folders = read_ahead(FOLDERS, fetch=disk.fetch, blocks_read=disk.read)
    for _ in range(LOOK_FOLDERS + 1):  # The first check that sees a cold disk follows.
        disk.open(next(folders))
    disk.wait_for(AHEAD_FOLDERS)
    folders.close()
    assert disk.fetched == set(FOLDERS[LOOK_FOLDERS : LOOK_FOLDERS + AHEAD_FOLDERS])


def test_unopened_folders_are_not_awaited():
    disk = UnreadDisk(40)
    folders = read_ahead(FOLDERS, fetch=disk.fetch, blocks_read=disk.read)
    assert next(folders) == FOLDERS[0]
    folders.close()
    assert not disk.fetched


@pytest.mark.parametrize("count", [0, 1, LOOK_FOLDERS, LOOK_FOLDERS + SHARE_FOLDERS + 1])
def test_few_folders_are_not_prefetched(count):
    assert opened(UnreadDisk(40), FOLDERS[:count]) == FOLDERS[:count]


def test_the_program_reads_existing_files(tmp_path):
    folders = [str(tmp_path / name) for name in ("a\nb", "gone", "ä")]
    for folder in (folders[0], folders[2]):
        os.mkdir(folder)
    fetcher = Fetcher()
    try:
        assert fetcher.fetch(folders) >= 0
        assert fetcher.fetch(folders * 100) >= 0
        assert fetcher._program.poll() is None
    finally:
        fetcher.close()
    assert fetcher._program.returncode is not None
    assert fetcher.fetch(folders) == 0


def test_the_end_of_the_program_ends_the_wait(tmp_path):
    program = tmp_path / "never_answers.py"
    program.write_text("import sys\nfor line in sys.stdin: open(sys.argv[0] + '.asked', 'w')\n")
    fetcher = Fetcher(str(program))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(fetcher.fetch, ["folder"])
        until_seen(lambda: os.path.exists(f"{program}.asked"))
        assert not answer.done()
        fetcher.end()
        assert answer.result(timeout=60) == 0
    fetcher.close()


@pytest.mark.parametrize("text", [None, "raise SystemExit(1)", "print('what?', flush=True)"])
def test_a_program_that_cannot_run_fetches_nothing(tmp_path, text):
    program = tmp_path / "program.py"
    if text is not None:
        program.write_text(text)
    fetcher = Fetcher(str(program))
    for _ in range(3):
        assert fetcher.fetch(["folder"] * 10_000) == 0
    fetcher.close()
