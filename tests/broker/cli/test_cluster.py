"""`braidlog cluster` and `braidlog serve` report a fault of a shared store in a single line."""

import subprocess
import sys

import pytest

from braidlog.broker.cli import cluster
from braidlog.broker.cli.failures import EXIT_FAILED, AdminError
from braidlog.broker.cli.main import run
from braidlog.storage.shared.ledger import LedgerUnanswered, SessionRow, SessionState, ShardRow
from tests.waiting import HANG_S

pytest.importorskip("psycopg", reason="the extra `shared` is not installed")
pytest.importorskip("obstore", reason="the extra `shared` is not installed")

NOBODY = "postgresql://nobody@127.0.0.1:1/none"


def settings(tmp_path, **changes):
    values = {"shared.database": NOBODY, "shared.store": f"file://{tmp_path}/objects", **changes}
    return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]


def refused(capsys):
    """Return the only line on standard error."""
    output = capsys.readouterr()
    assert not output.out and output.err.startswith("braidlog: ") and output.err.count("\n") == 1
    return output.err


@pytest.mark.parametrize("command", [["init"], ["show"], ["verify"], ["sweep", "--yes"]])
def test_a_missing_database_is_a_single_line(tmp_path, capsys, command):
    assert run(["cluster", *command, *settings(tmp_path)]) == 1
    assert "PostgreSQL" in refused(capsys)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"shared.store": "ftp://x"}, "s3://BUCKET"),
        ({"log.durability": "written"}, "only `synced`"),
        ({"shared.round_ms": "soon"}, "shared.round_ms"),
    ],
)
def test_invalid_settings_are_refused(tmp_path, capsys, changes, reason):
    assert run(["cluster", "show", *settings(tmp_path, **changes)]) == 2
    assert reason in refused(capsys)


def test_without_a_store_nothing_is_tried(capsys):
    assert run(["cluster", "show"]) == 2
    assert "storage.mode shared needs shared.database" in refused(capsys)
    assert run(["cluster", "show", "--set", "nonsense"]) == 2
    refused(capsys)
    assert run(["cluster", "init", "--shards", "0"]) == 2
    refused(capsys)


def test_a_broker_without_its_database_does_not_start(tmp_path):
    """A separate process: a broker sets up logging and garbage collection for the whole process."""
    command = [
        sys.executable,
        "-m",
        "braidlog.broker.cli.main",
        "serve",
        "--data-dir",
        str(tmp_path / "d"),
    ]
    command += ["--set", "storage.mode=shared", *settings(tmp_path, **{"cluster.join_ms": 100})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 1
    assert "PostgreSQL" in done.stderr.splitlines()[-1]
    assert "store_unanswered" in done.stdout + done.stderr, "it said at once why it waited"


class LedgerWithGaps:
    """A ledger of two nodes. Leaves the first `gaps` questions out, and all from a time on."""

    def __init__(self, shards, *, gaps=0, silent_from_s=1e9):
        self.now_s = 0.0
        self.asked = 0
        self._shards = shards
        self._gaps, self._silent_from_s = gaps, silent_from_s

    def sleep(self, seconds):
        self.now_s += seconds

    def sessions(self):
        self.asked += 1
        if self.asked <= self._gaps or self.now_s >= self._silent_from_s:
            raise LedgerUnanswered("no answer")
        return [
            SessionRow(5, 1, SessionState.LIVE, 0, 0),
            SessionRow(6, 2, SessionState.LIVE, 0, 0),
        ]

    def shards(self):
        number = self._shards.pop(0) if len(self._shards) > 1 else self._shards[0]
        return [ShardRow(shard, 1, 5 if shard < number else 6) for shard in range(4)]


def await_drained(ledger):
    return cluster.await_drained(ledger, 1, clock=lambda: ledger.now_s, sleep=ledger.sleep)


def test_a_drain_asks_again_if_the_database_does_not_answer():
    ledger = LedgerWithGaps([3, 1, 0], gaps=3)
    assert await_drained(ledger) == 0
    assert ledger.asked == 6 and ledger.now_s < cluster.DRAIN_S


def test_a_drain_that_does_not_end_says_how_many_shards_are_left():
    ledger = LedgerWithGaps([2])
    assert await_drained(ledger) == 2
    assert ledger.now_s >= cluster.DRAIN_S
    with pytest.raises(
        AdminError, match="node 1 still owns 2 shards: is another one live"
    ) as raised:
        cluster.report_drain(1, 2, ledger.now_s)
    assert raised.value.exit_code == EXIT_FAILED


def test_a_drain_gives_up_on_a_silent_database_after_its_time():
    ledger = LedgerWithGaps([2], silent_from_s=1.0)
    with pytest.raises(LedgerUnanswered):
        await_drained(ledger)
    assert cluster.DRAIN_S / 2 < ledger.now_s <= cluster.DRAIN_S
