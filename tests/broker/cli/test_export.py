"""`braidlog export` where there is nothing to export: one line, and the exit code that says why.

What it writes is tested with the export itself.
"""

import pytest

from broker.cli.main import run
from storage.log.data_dir import DataDir

pytest.importorskip("pyspark")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--store", "s3://b/p", "--data-dir", "data"], "--data-dir or --store"),
        (["--database", "host=db"], "go with --store"),
        (["--store", "bucket"], "s3://BUCKET/PREFIX"),
        (["--store", "s3://b/p", "--database", "password=secret"], "PGPASSWORD"),
    ],
)
@pytest.mark.slow
def test_a_store_that_cannot_be_is_one_line(tmp_path, capsys, more, said):
    assert run(["export", "orders", "--to", str(tmp_path / "to"), *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("braidlog: ") and said in line and "secret" not in line


@pytest.mark.parametrize(
    ("topic", "made", "code", "said"),
    [
        ("orders", False, 1, "/partitions: No such file or directory"),
        ("orders", True, 4, "holds no topic public/default/orders"),
        ("a/b", True, 2, "a/b"),
    ],
)
@pytest.mark.slow
def test_refusals_are_one_line(tmp_path, capsys, topic, made, code, said):
    data_dir, target = tmp_path / "data", tmp_path / "to"
    if made:
        DataDir.open(data_dir).abandon()
    assert run(["export", topic, "--to", str(target), "--data-dir", str(data_dir)]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("braidlog: ") and said in line
    assert not target.exists()
