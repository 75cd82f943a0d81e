"""The runner's side of a driver process. Knows processes and JSON lines, no client library."""

import json
import queue
import subprocess
import threading
from pathlib import Path
from typing import Any

from conformance.clients.base import ClientMessage, Timeout

ROOT = Path(__file__).resolve().parent.parent.parent

# Longer than any driver's wait, so that the driver's own error arrives.
CALL_TIMEOUT_S = 120.0


class DriverFailed(Exception):
    """The client library refused, failed or gave up; the text is the library's."""


class DriverProxy:
    """A driver in its own process; also a context manager. Implements `Driver`."""

    def __init__(self, python: Path, module: str, address: str) -> None:
        self.name = module
        self._process = subprocess.Popen(
            [str(python), "-m", "conformance.clients.serve", module, address],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.log: list[str] = []
        threading.Thread(target=self._pump_answers, daemon=True).start()
        threading.Thread(target=self._pump_log, daemon=True).start()

    def produce(
        self, topic: str, messages: list[ClientMessage], compression: str | None = None
    ) -> None:
        items = [message.to_json() for message in messages]
        self._call("produce", topic=topic, messages=items, compression=compression)

    def read(self, topic: str, count: int) -> list[ClientMessage]:
        return [
            ClientMessage.from_json(item) for item in self._call("read", topic=topic, count=count)
        ]

    def read_as_group(self, topic: str, group: str, count: int) -> list[ClientMessage]:
        items = self._call("read_as_group", topic=topic, group=group, count=count)
        return [ClientMessage.from_json(item) for item in items]

    def close(self) -> None:
        """End the process; no state is lost."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> "DriverProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, name: str, **args: Any) -> Any:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps({"call": name, "args": args}) + "\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=CALL_TIMEOUT_S)
        except queue.Empty:
            raise Timeout(f"{self.name}.{name}: no answer in {CALL_TIMEOUT_S:.0f} s") from None
        except BrokenPipeError:
            line = None
        if line is None:
            raise DriverFailed(f"{self.name}: process ended; " + " | ".join(self.log[-5:]))
        answer = json.loads(line)
        if "error" in answer:
            raise DriverFailed(answer["error"])
        return answer["result"]

    def _pump_answers(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)

    def _pump_log(self) -> None:
        assert self._process.stderr
        for line in self._process.stderr:
            self.log.append(line.rstrip())
            del self.log[:-200]
