"""`braidlog serve` as users start it: a process of its own, seen through its ready file and its
output.
"""

import json
import os
import signal
import subprocess
import sys
import time

from broker.adapters import discover
from storage.log.verify import Verifier, is_data_dir

START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 30


class RunningBroker:
    """A broker process on loopback; a context manager.

    `listen` maps doors to addresses or "off"; doors that it leaves out get any free port, or are
    off with `others=False`. Everything is kept below `folder`, so that a next one there goes on
    with the data.
    """

    def __init__(self, folder, *, listen=None, others=True, settings=(), environment=None):
        self.folder = folder
        self.data_dir = folder / "data"
        self.ready_file = folder / "ready.json"
        self.addresses = {}
        self.process = None
        self._listen = dict.fromkeys(discover(), "127.0.0.1:0" if others else "off")
        self._listen.update(listen or {})
        self._settings = settings
        self._environment = environment or {}

    @property
    def command(self):
        """The command line."""
        command = [sys.executable, "-m", "broker.cli", "serve", "--data-dir", str(self.data_dir)]
        command += ["--ready-file", str(self.ready_file)]
        for name, address in self._listen.items():
            command += ["--listen", f"{name}={address}"]
        for setting in self._settings:
            command += ["--set", setting]
        return command

    def run_to_end(self):
        """Start a broker that is expected to end by itself; (exit code, stdout, stderr)."""
        ended = subprocess.run(
            self.command,
            env=os.environ | self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=START_TIMEOUT_S,
        )
        return ended.returncode, ended.stdout.decode(), ended.stderr.decode()

    def start(self):
        """Returns when every door accepts."""
        self.ready_file.unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "output", "ab") as output, open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env=os.environ | self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.ready_file.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the broker did not start: {self.log()[-2000:]}")
            time.sleep(0.005)
        ready = json.loads(self.ready_file.read_text())
        assert ready["pid"] == self.process.pid
        for name, address in ready["listeners"].items():
            host, port = address.rsplit(":", 1)
            self.addresses[name] = (host, int(port))
        return self

    def output(self):
        """What it printed for people."""
        return (self.folder / "output").read_text()

    def log(self):
        """What it logged."""
        return (self.folder / "log").read_text()

    def resident_bytes(self):
        """Memory that it holds now."""
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def signal(self, number):
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self):
        """The exit code, once it has ended."""
        return self.process.wait(STOP_TIMEOUT_S)

    def stop(self):
        """SIGTERM; returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self):
        """SIGKILL, if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        self.kill()
        if kind is None and is_data_dir(self.data_dir):
            self.verify()

    def verify(self):
        """Whatever clients did, `log verify` finds nothing wrong."""
        found = []
        report = Verifier(self.data_dir, found.append, lambda done, total: None).run()
        assert report.faults == 0, found
