import os

import pytest

from braidlog.storage.directory.data_dir import DataDir
from braidlog.storage.directory.first_look import check_folder
from braidlog.storage.errors import NotADataDirectory


@pytest.mark.parametrize("name", ["notes.txt", "photos/", "Lock"])
def test_a_folder_with_foreign_files_is_refused_and_unchanged(tmp_path, name):
    (tmp_path / "lost+found").mkdir()
    if name.endswith("/"):
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("x")
    before = os.listdir(tmp_path)
    with pytest.raises(NotADataDirectory, match=name.strip("/")):
        check_folder(str(tmp_path))
    assert os.listdir(tmp_path) == before


def test_only_some_of_many_names_are_shown(tmp_path):
    for number in range(9):
        (tmp_path / f"file-{number}").touch()
    with pytest.raises(NotADataDirectory, match=r"\(file-0, file-1, file-2, \.\.\.\)"):
        check_folder(str(tmp_path))


def test_ignored_names(tmp_path):
    for name in ("lost+found", ".cache"):
        (tmp_path / name).mkdir()
    for name in (".profile", "braidlog.toml", "ready.json"):
        (tmp_path / name).touch()
    check_folder(str(tmp_path), ("ready.json",))
    check_folder(str(tmp_path / "new"))


def test_an_interrupted_first_start_may_be_repeated(tmp_path):
    (tmp_path / "lock").touch()
    check_folder(str(tmp_path))


@pytest.mark.parametrize("lost", [None, "catalogue", "partitions"])
def test_a_data_directory_may_hold_other_files(tmp_path, lost):
    DataDir.open(tmp_path).abandon()
    (tmp_path / "catalogue").mkdir(exist_ok=True)
    (tmp_path / "notes.txt").touch()
    if lost is not None:
        (tmp_path / lost).rmdir()
    check_folder(str(tmp_path))
