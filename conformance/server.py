"""A broker for a run, started in its own process by the users' command line.

The run sees only the broker's ready file, output and files.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from braidlog.storage.tools.verify import Verifier, is_data_dir
from conformance.ports import reserve_ports

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 60.0
ANY_PORT = "127.0.0.1:0"
LISTENERS = ("kafka", "pulsar", "iggy", "http")


class BrokerFailed(Exception):
    """The broker did not become ready or did not end; the text is the broker's."""


class RunningBroker:
    """`braidlog serve` on loopback ports; a context manager that verifies the log at the end.

    `listen` maps listeners to addresses or "off". Other listeners get any free port, which they
    keep over restarts, or are off with `others=False`. All files are below `folder`, so that
    another broker on the same folder continues with the data. Without `folder`, the files are in a
    temporary folder that is removed at the end. `program` is the module that runs.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        listen: Mapping[str, str] | None = None,
        others: bool = True,
        settings: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        program: str = "braidlog.broker.cli.main",
    ) -> None:
        self._held = ExitStack()
        self._program = program
        self._log_seen = 0  # bytes of the log that are in `_log_lines` or were returned
        self._log_lines: list[str] = []
        if folder is None:
            scratch = tempfile.TemporaryDirectory(prefix="braidlog-")
            folder = Path(self._held.enter_context(scratch))
        self.folder = folder
        self.data_dir = folder / "data"
        self.ready_file = folder / "ready.json"
        self.addresses: dict[str, str] = {}
        # Headers for other modules' requests to the HTTP listener.
        self.http_headers: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self._listen = dict.fromkeys(LISTENERS, ANY_PORT if others else "off") | dict(listen or {})
        self._ports: dict[str, str] = {}
        self._settings = settings
        self._environment = os.environ | (environment or {})

    @property
    def command(self) -> list[str]:
        """Return the command line."""
        command = [
            sys.executable,
            "-m",
            self._program,
            "serve",
            "--data-dir",
            str(self.data_dir),
        ]
        command += ["--ready-file", str(self.ready_file)]
        for listener, address in self._listen.items():
            command += ["--listen", f"{listener}={self._ports.get(listener, address)}"]
        for setting in self._settings:
            command += ["--set", setting]
        return command

    def run_to_end(self) -> tuple[int, str, str]:
        """Start a broker that should end without a signal; return (exit code, stdout, stderr)."""
        ended = subprocess.run(
            self.command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=START_TIMEOUT_S,
        )
        return ended.returncode, ended.stdout.decode(), ended.stderr.decode()

    def start(self) -> Self:
        """Start the broker; return when every listener accepts. Raises BrokerFailed with the last
        output.
        """
        process = self.launch()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise BrokerFailed(f"it did not start: {self.log_tail()}")
            time.sleep(0.005)
        return self

    def launch(self) -> "subprocess.Popen[bytes]":
        """Start the process without waiting for its listeners: in a cluster they may take long."""
        for listener, address in self._listen.items():
            if address == ANY_PORT and listener not in self._ports:
                (port,) = reserve_ports(1, self._held)
                self._ports[listener] = f"127.0.0.1:{port}"
        self.ready_file.unlink(missing_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "output", "ab") as output, open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
            )
        return self.process

    def is_ready(self) -> bool:
        """Return True if every listener accepts; then `addresses` has them."""
        if not self.ready_file.exists():
            return False
        ready = json.loads(self.ready_file.read_text())
        assert ready["pid"] == self.pid
        self.addresses = ready["listeners"]
        return True

    def address(self, listener: str) -> tuple[str, int]:
        """Return host and port of a listener."""
        host, _, port = self.addresses[listener].rpartition(":")
        return host, int(port)

    @property
    def url(self) -> str:
        """Return the address of the HTTP listener, for `--url`."""
        return f"http://{self.addresses['http']}"

    @property
    def pid(self) -> int:
        """Return the process id."""
        assert self.process is not None
        return self.process.pid

    def is_running(self) -> bool:
        """Return True while the process runs."""
        return self.process is not None and self.process.poll() is None

    def resident_bytes(self) -> int:
        """Return the broker's present memory."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def output(self) -> str:
        """Return the broker's output for people."""
        return (self.folder / "output").read_text()

    def log(self) -> str:
        """Return the broker's log."""
        return (self.folder / "log").read_text(errors="backslashreplace")

    def new_log_lines(self) -> list[str]:
        """Return the whole lines logged since the last call."""
        self._read_log()
        lines, self._log_lines = self._log_lines, []
        return lines

    def _read_log(self) -> None:
        try:
            with open(self.folder / "log", "rb") as log:
                log.seek(self._log_seen)
                written, end, _ = log.read().rpartition(b"\n")
        except FileNotFoundError:
            return
        self._log_seen += len(written + end)
        self._log_lines += written.decode(errors="backslashreplace").splitlines()

    def metrics_lines(self) -> list[str]:
        """Return the lines of `/metrics`. Raises BrokerFailed for a refusal, with the answer and
        the last logged lines, which have the traceback of a bug.
        """
        request = urllib.request.Request(f"{self.url}/metrics", headers=self.http_headers)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as answer:
                lines: list[str] = answer.read().decode().splitlines()
                return lines
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="backslashreplace")
            refused = f"/metrics answered {error.code}: {text}\n{self.log_tail()}"
            raise BrokerFailed(refused) from None

    def log_tail(self) -> str:
        """Return the last logged lines."""
        return "\n".join(self.log().splitlines()[-20:])

    def signal(self, number: int) -> None:
        """Send a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end; return the exit code. Raises BrokerFailed if the broker
        does not end.
        """
        assert self.process is not None
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(f"it did not end: {self.log_tail()}") from None

    def stop(self) -> int:
        """Stop cleanly with SIGTERM; return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """Send SIGKILL if the broker still runs: a crash of the process."""
        if self.process is not None and self.is_running():
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """Kill the process and give back the ports and a temporary folder."""
        with self._held:
            self._ports.clear()
            self.kill()

    def verify(self) -> None:
        """Check that `log verify` finds no fault, whatever clients did. Raises AssertionError."""
        faults: list[object] = []
        report = Verifier(self.data_dir, faults.append, lambda done, total: None).run()
        assert report.faults == 0, faults

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._held:
            self._ports.clear()
            self.kill()
            self._read_log()
            if kind is None and is_data_dir(self.data_dir):
                self.verify()
