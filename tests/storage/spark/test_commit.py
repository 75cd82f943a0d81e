"""Exactly once for every reader of the folder: intents, names and commit records."""

import pytest

from storage.spark.commit import Commit, ExportFolder, FolderBusy, Intent, StagedFile, day_of
from storage.spark.ranges import Range

PART = Range(partition_id=12, index=3, folder="/log/12", start=5, end=90)


def test_the_name_of_a_file_follows_from_the_range_alone(tmp_path):
    folder = ExportFolder(tmp_path)
    assert folder.final_path("public/default/orders", PART, "2026-01-02") == (
        "topic=public%2Fdefault%2Forders/date=2026-01-02/"
        "orders+00003+12+00000000000000000005+00000000000000000090.parquet"
    )


def test_an_intent_is_there_until_its_commit(tmp_path):
    folder = ExportFolder(tmp_path)
    intent = Intent(1, "public/default/orders", [PART])
    folder.write_intent(intent)
    assert ExportFolder(tmp_path).open_intent(1) == intent
    folder.commit(Commit(1, intent.topic, {12: 90}, []))
    assert ExportFolder(tmp_path).open_intent(1) is None


def test_the_last_commit_is_the_one_with_the_highest_run(tmp_path):
    folder = ExportFolder(tmp_path)
    assert folder.last_commit() is None
    for run in (1, 2, 10):
        folder.commit(Commit(run, "public/default/orders", {12: run}, []))
    assert ExportFolder(tmp_path).last_commit().positions == {12: 10}


def test_publishing_twice_leaves_one_file(tmp_path):
    """A run that died between publishing and its commit is repeated under the same names."""
    folder = ExportFolder(tmp_path)
    for turn in (b"first", b"again"):
        staged = folder.staging(1) / f"{turn.decode()}.parquet"
        staged.write_bytes(turn)
        final = folder.final_path("public/default/orders", PART, "2026-01-02")
        folder.publish([StagedFile(str(staged), final, 1, 5, 0, 0)])
    found = list(tmp_path.glob("topic=*/date=*/*.parquet"))
    assert [path.read_bytes() for path in found] == [b"again"]


def test_a_commit_removes_the_litter_of_its_run(tmp_path):
    folder = ExportFolder(tmp_path)
    (folder.staging(1) / "litter.parquet").write_bytes(b"x")
    folder.commit(Commit(1, "public/default/orders", {}, []))
    assert list((tmp_path / "_export" / "staging").iterdir()) == []


def test_two_exports_to_one_folder_exclude_each_other(tmp_path):
    first, second = ExportFolder(tmp_path), ExportFolder(tmp_path)
    with first.locked(), pytest.raises(FolderBusy), second.locked():
        pass


@pytest.mark.parametrize(
    ("time_us", "day"),
    [(0, "1970-01-01"), (86_400_000_000 - 1, "1970-01-01"), (1_767_225_600_000_000, "2026-01-01")],
)
def test_the_day_is_that_of_utc(time_us, day):
    assert day_of(time_us) == day
