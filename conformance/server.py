"""A broker of our own for a run: started by the command line that users have, seen through its
ready file.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
DOORS = ("kafka", "pulsar", "iggy", "http")


class StartFailed(Exception):
    """The broker ended or did not become ready; the text is its own."""


class RunningBroker:
    """`braidlog serve` in a process of its own on loopback ports; also a context manager.

    The data directory is kept over `stop`, `kill` and another `start`, and removed at the end when
    it was made here.
    """

    def __init__(self, data_dir: Path | None = None, *options: str) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="braidlog-")
        self.data_dir = data_dir or Path(self._scratch.name) / "data"
        self.options = options
        self.addresses: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = Path(self._scratch.name) / "broker.log"

    def start(self) -> "RunningBroker":
        """Returns when every door accepts. A restart uses the ports of the start before it.

        Raises:
            StartFailed: with the last words of the broker.
        """
        ready = Path(self._scratch.name) / "ready.json"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "broker.cli", "serve", "--data-dir", str(self.data_dir)]
        command += ["--ready-file", str(ready)]
        for door in DOORS:
            command += ["--listen", f"{door}={self.addresses.get(door, '127.0.0.1:0')}"]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self.options], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise StartFailed(self.log_tail())
            time.sleep(0.01)
        self.addresses = json.loads(ready.read_text())["listeners"]
        return self

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self.process is not None
        return self.process.pid

    @property
    def url(self) -> str:
        """Where the HTTP door is, for `--url`."""
        return f"http://{self.addresses['http']}"

    def stop(self) -> int:
        """A clean stop by SIGTERM; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise StartFailed("no end after SIGTERM: " + self.log_tail()) from None

    def kill(self) -> None:
        """SIGKILL: what a crash of the process is."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def verify(self) -> None:
        """Whatever clients did, `log verify` finds nothing wrong. Raises AssertionError."""
        command = [sys.executable, "-m", "broker.cli", "log", "verify"]
        command += ["--data-dir", str(self.data_dir)]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr

    def log_tail(self) -> str:
        """The last lines that the broker wrote."""
        return "\n".join(self.log_path.read_text(errors="backslashreplace").splitlines()[-20:])

    def __enter__(self) -> "RunningBroker":
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.kill()
        try:
            if kind is None:
                self.verify()
        finally:
            self._scratch.cleanup()
