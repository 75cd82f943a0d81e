"""A run that is ended by a signal stops the servers that it started."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.cluster import servers
from tests.waiting import HANG_S, until_seen


def descendants(pid):
    """All processes that a process has started, and that are there."""
    below = servers.children(pid)
    return below + [one for child in below for one in descendants(child)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_make_cluster_ended_by_a_signal_leaves_no_server(tmp_path, number):
    if reason := servers.missing():
        pytest.skip(reason)
    said = tmp_path / "said"
    with open(said, "wb") as output:
        run = subprocess.Popen(
            [sys.executable, "-u", "-m", "conformance.cluster"], stdout=output, stderr=output
        )
    until_seen(lambda: "node 3 is process" in said.read_text() or run.poll() is not None)
    started = descendants(run.pid)
    assert len(started) > 4, said.read_text()
    run.send_signal(number)
    assert run.wait(HANG_S) == 128 + number
    until_seen(lambda: not [pid for pid in started if Path(f"/proc/{pid}").exists()])
