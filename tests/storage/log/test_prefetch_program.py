"""Prefetching for a start reads any existing file, and refuses nothing."""

import io
import json
import sys

from braidlog.storage.log.prefetch_program import fetch_folders, main


def folders_of(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "00000000000000000000.log").write_bytes(b"x" * 200_000)
    (tmp_path / "there" / "topic").write_bytes(b"")
    (tmp_path / "there" / "folder").mkdir()
    return [str(tmp_path / "there"), str(tmp_path / "gone")]


def test_fetching_reads_existing_files(tmp_path):
    assert fetch_folders(folders_of(tmp_path)) >= 0


def test_each_line_is_answered_by_a_line(tmp_path, monkeypatch, capsys):
    line = json.dumps(folders_of(tmp_path)).encode() + b"\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line + b"[]\n")))
    main()
    answers = capsys.readouterr().out.splitlines()
    assert len(answers) == 2 and int(answers[0]) >= 0 and answers[1] == "0"
