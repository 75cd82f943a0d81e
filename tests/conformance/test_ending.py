"""A signal that ends a run also stops the run's servers."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.cluster import servers
from tests.waiting import HANG_S, until_seen


def descendants(pid):
    """Return all living descendants of a process."""
    below = servers.children(pid)
    return below + [descendant for child in below for descendant in descendants(child)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_make_cluster_leaves_no_server(tmp_path, number):
    if reason := servers.missing():
        pytest.skip(reason)
    output_file = tmp_path / "said"
    with open(output_file, "wb") as output:
        run = subprocess.Popen(
            [sys.executable, "-u", "-m", "conformance.cluster"], stdout=output, stderr=output
        )
    until_seen(lambda: "node 3 is process" in output_file.read_text() or run.poll() is not None)
    started = descendants(run.pid)
    assert len(started) > 4, output_file.read_text()
    run.send_signal(number)
    assert run.wait(HANG_S) == 128 + number
    until_seen(lambda: not [pid for pid in started if Path(f"/proc/{pid}").exists()])
