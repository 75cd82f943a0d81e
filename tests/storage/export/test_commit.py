"""Exactly once for every reader of the folder: intents, prepared records and commits."""

import contextlib
import os
import random
import signal
import sys

import pytest

from braidlog.storage.export.commit import (
    Commit,
    ExportFolder,
    FolderBroken,
    FolderBusy,
    Intent,
    StagedFile,
)
from braidlog.storage.export.ranges import Range

PART = Range(partition_id=12, index=3, start=5, end=90, topic="public/default/orders")
FINAL = "topic=orders/date=2026-01-02/orders.parquet"


def staged(folder, run, content=b"rows", final=FINAL):
    path = folder.staging(run) / f"{os.urandom(4).hex()}.parquet"
    path.write_bytes(content)
    return StagedFile(str(path), final, 1, len(content), 0, 0)


def test_an_intent_exists_until_its_commit(tmp_path):
    folder = ExportFolder(tmp_path)
    intent = Intent(1, [PART])
    folder.write_intent(intent)
    assert ExportFolder(tmp_path).open_intent(1) == intent
    folder.commit(Commit(1, {12: 90}, []))
    assert ExportFolder(tmp_path).open_intent(1) is None


def test_an_intent_can_be_withdrawn_with_its_staged_files(tmp_path):
    folder = ExportFolder(tmp_path)
    folder.write_intent(Intent(1, [PART]))
    staged(folder, 1)
    folder.drop_intent(1)
    assert folder.open_intent(1) is None
    assert list((tmp_path / "_export" / "staging").iterdir()) == []


def test_the_last_commit_has_the_highest_run(tmp_path):
    folder = ExportFolder(tmp_path)
    assert folder.last_commit() is None
    for run in (1, 2, 10):
        folder.commit(Commit(run, {12: run}, []))
    assert ExportFolder(tmp_path).last_commit().positions == {12: 10}


def test_a_commit_shows_its_files_and_removes_the_litter_of_its_run(tmp_path):
    folder = ExportFolder(tmp_path)
    file = staged(folder, 1)
    (folder.staging(1) / "litter.parquet").write_bytes(b"x")
    folder.commit(Commit(1, {12: 90}, [file]))
    assert (tmp_path / FINAL).read_bytes() == b"rows"
    assert list((tmp_path / "_export" / "staging").iterdir()) == []


def test_a_vanished_staged_file_is_an_error(tmp_path):
    folder = ExportFolder(tmp_path)
    file = staged(folder, 1)
    os.unlink(file.staged)
    with pytest.raises(FolderBroken, match="both missing"):
        folder.commit(Commit(1, {12: 90}, [file]))


def test_two_exports_to_one_folder_exclude_each_other(tmp_path):
    first, second = ExportFolder(tmp_path), ExportFolder(tmp_path)
    with first.locked(), pytest.raises(FolderBusy), second.locked():
        pass


def a_run(root, numbers):
    """Export the numbers into two files each, as the job does."""
    folder = ExportFolder(root)
    folder.finish_prepared()
    run = folder.next_run()
    folder.write_intent(Intent(run, [PART]))
    position = (folder.last_commit() or Commit(0, {12: 0}, [])).positions[12]
    fresh = [number for number in range(numbers) if number >= position]
    files = [
        staged(folder, run, f"{number} ".encode(), f"topic=t/date={number % 3}/{number}.parquet")
        for number in fresh
    ]
    folder.commit(Commit(run, {12: numbers}, files))


@pytest.mark.slow
def test_a_kill_at_every_step_leaves_each_record_once(tmp_path):
    """Each step that Python audits (a file opened, created, renamed, removed) is the last step of a
    process.

    A reader of the folder sees no record twice, and all records after another run.
    """
    seed = 12
    print("seed", seed)
    rng = random.Random(seed)
    kills, rows = 0, 0
    while kills < 100:
        rows += rng.randrange(3)
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                killed_at(rng.randrange(40))
                a_run(tmp_path, rows)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        kills += os.WIFSIGNALED(status)
        rng.random()
        seen = shown(tmp_path)
        assert len(seen) == len(set(seen)), seen
    a_run(tmp_path, rows)
    assert sorted(shown(tmp_path)) == list(range(rows))


def a_merge(root):
    """Merge the small files of a date, as `compact` does."""
    folder = ExportFolder(root)
    folder.finish_prepared()
    small = sorted(root.glob("topic=t/date=0/*.parquet"))
    if len(small) > 1:
        run = folder.next_run()
        content = b" ".join(path.read_bytes() for path in small)
        merged = staged(folder, run, content, "topic=t/date=0/merged.parquet")
        replaced = [str(path.relative_to(root)) for path in small]
        positions = folder.last_commit().positions
        folder.commit(Commit(run, positions, [merged], replaced=replaced))


@pytest.mark.slow
def test_a_merge_killed_at_any_step_is_finished_without_loss(tmp_path):
    for step in range(200):
        root = tmp_path / str(step)
        root.mkdir()
        a_run(root, 9)
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                killed_at(step)
                a_merge(root)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert set(numbers(root)) == set(range(9)), f"killed at step {step}"
        a_merge(root)
        assert sorted(numbers(root)) == list(range(9)), f"killed at step {step}"
        if not os.WIFSIGNALED(status):
            break
    assert step > 20


def numbers(root):
    files = root.glob("topic=*/date=*/*.parquet")
    return [int(number) for path in files for number in path.read_text().split()]


def shown(root):
    return [int(path.read_text()) for path in root.glob("topic=*/date=*/*.parquet")]


def killed_at(step):
    left = [step]

    def count(event, _):
        if event in ("open", "os.rename", "os.remove", "os.mkdir", "shutil.rmtree", "os.listdir"):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
