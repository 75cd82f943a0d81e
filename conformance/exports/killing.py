"""Exports that lose all of Spark's processes at a random moment: driver, JVM and
workers at once.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from conformance.exports.folder import FolderCounts, check_once
from conformance.exports.writer import TOPIC, LiveWriter, ends_of
from conformance.server import RunningBroker

START_S = 1200.0  # Until an export has begun its first run, on a busy machine.
AFTER_S = 2.0  # Latest kill after the start of a run: runs take less.
RUN_ROWS = "3000"


def killed_runs(kills: int, seed: int) -> FolderCounts:
    """Kill exports beside a live writer, then export the rest. Raises AssertionError."""
    print("seed", seed, flush=True)
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="braidlog-") as scratch, RunningBroker() as broker:
        lake = Path(scratch) / "lake"
        with LiveWriter(broker, seed):
            for number in range(kills):
                _export_until_killed(broker, lake, rng)
                shown = check_once(lake)
                print(f"kill {number + 1}: {shown.rows} rows", flush=True)
        done = subprocess.run(
            _command(broker, lake), stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return check_once(lake, ends_of(broker, TOPIC))


def _command(broker: RunningBroker, lake: Path, *more: str) -> list[str]:
    command = [sys.executable, "-m", "braidlog.broker.cli.main", "export", TOPIC, "--to", str(lake)]
    return [*command, "--data-dir", str(broker.data_dir), *more]


def _export_until_killed(broker: RunningBroker, lake: Path, rng: random.Random) -> None:
    intents = lake / "_export" / "intent"
    before = {path.name for path in intents.glob("*.json")} | _committed(lake)
    process = subprocess.Popen(
        _command(broker, lake, "--loop", "1s", "--max-rows", RUN_ROWS),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + START_S
    try:
        while {path.name for path in intents.glob("*.json")} <= before:
            assert process.poll() is None, f"the export ended with {process.returncode}"
            assert time.monotonic() < deadline, "the export did not begin"
            time.sleep(0.01)
        time.sleep(rng.uniform(0, AFTER_S))
    finally:
        while processes := _session(process.pid):
            for process_id in processes:
                _kill(process_id)
            process.poll()
        process.wait()


def _committed(lake: Path) -> set[str]:
    return {path.name for path in (lake / "_export" / "commits").glob("*.json")}


def _session(leader: int) -> list[int]:
    """Return all processes of a session, in any process group: Spark's workers have a separate
    group.
    """
    process_ids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            process_ids.append(int(path.parent.name))
    return process_ids


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
