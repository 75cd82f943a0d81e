"""Sends the small output of many connections in a thread, while the loop serves other sockets.

A send over TCP costs a fifth of a small request's processor time: the kernel wakes the client. With
tens of clients in a pass, another processor does that. Knows no protocol.
"""

from __future__ import annotations

import errno
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from braidlog.broker.limits import SENDS_MIN
from braidlog.storage.formats.quick import SPEEDUPS

if TYPE_CHECKING:
    from braidlog.broker.runtime.poller import Poller

Send = tuple[int, bytes]  # Descriptor, output.
# Sends without waiting; returns numbers of sent bytes, and negative error numbers.
SendEach = Callable[[Sequence[Send]], list[int]]
# None without the extension, which frees Python's lock, and on a single processor.
SEND_EACH: SendEach | None = None
if SPEEDUPS is not None and len(os.sched_getaffinity(0)) > 1:
    SEND_EACH = SPEEDUPS.send_each


class Output(Protocol):
    """The output of a connection (`broker/runtime/outbox.py`)."""

    @property
    def is_handed_over(self) -> bool:
        """True if a batch that is not over has output."""

    def hand_over(self, batch: SendBatch) -> None:
        """Give output to a batch, or send the output."""

    def take_back(self, data: bytes, result: int) -> None:
        """Take output of a batch that was not sent whole: `result` is the number of sent bytes, or
        a negative error number. `flush` follows.
        """

    def flush(self) -> None:
        """Send output, without the thread."""


class SendBatch:
    """Output of many outboxes, on its way through the thread."""

    __slots__ = ("is_over", "outputs", "sends", "waiting")

    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self.sends: list[Send] = []  # For each outbox, descriptor and bytes.
        self.waiting: list[Output] = []  # with output that must come later
        self.is_over = False

    def end(self, results: Sequence[int]) -> None:
        """Let the outboxes send again, after rest and error of each: `results` holds numbers of
        sent bytes, and negative error numbers.
        """
        for output, (_, data), result in zip(self.outputs, self.sends, results, strict=True):
            if result != len(data):
                output.take_back(data, result)
                self.waiting.append(output)
        self.is_over = True
        for output in self.waiting:  # These calls may end connections.
            output.flush()
        # Each outbox keeps its last batch: drop references that lead back.
        self.outputs, self.sends, self.waiting = [], [], []


class SendThread:
    """Sends at the end of a pass. One per broker.

    Guarantees: an outbox has at most one send in the thread, and sends nothing itself meanwhile.
    The thread never waits for a client, so `settle` and `close` wait for microseconds. All other
    methods return at once.
    """

    def __init__(
        self,
        poller: Poller,
        *,
        sends_min: int = SENDS_MIN,
        send_each: SendEach | None = SEND_EACH,
    ) -> None:
        """Fewer outboxes than `sends_min` send at once, without the thread; all do if there is no
        `send_each`.
        """
        self._poller = poller
        self._sends_min = sends_min if send_each is not None else sys.maxsize
        self._send_each = send_each
        self._waiting: list[Output] = []
        self._jobs: queue.SimpleQueue[SendBatch | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[SendBatch, list[int]]] = queue.SimpleQueue()
        self._answered = -1  # an eventfd, once the thread runs
        self._thread: threading.Thread | None = None

    @property
    def is_in_pass(self) -> bool:
        """True within a pass of the poller."""
        return self._poller.in_pass

    def send_soon(self, output: Output) -> None:
        """Send the output behind the sockets of this pass (`Poller.call_soon`)."""
        if not self._waiting:
            self._poller.call_soon(self._send_waiting)
        self._waiting.append(output)

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        if len(waiting) < self._sends_min:
            for output in waiting:
                output.flush()
            return
        batch = SendBatch()
        for output in waiting:
            output.hand_over(batch)
        if self._thread is None:
            self._start()
        self._jobs.put(batch)

    def settle(self, output: Output) -> None:
        """Wait until the thread has no output of the outbox."""
        while output.is_handed_over:
            batch, results = self._done.get()
            batch.end(results)

    def close(self) -> None:
        """End the thread, after its last send."""
        if self._thread is None:
            return
        self._jobs.put(None)
        self._thread.join()
        self._thread = None
        self._collect()
        self._poller.unwatch(self._answered)
        os.close(self._answered)

    def _start(self) -> None:
        self._answered = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poller.watch(self._answered, self._collect, is_client=False)
        self._thread = threading.Thread(target=self._work, name="braidlog-send", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        send_each = self._send_each
        assert send_each is not None
        while (batch := self._jobs.get()) is not None:
            try:
                results = send_each(batch.sends)
            except MemoryError:
                results = [-errno.ENOMEM] * len(batch.sends)
            self._done.put((batch, results))
            os.eventfd_write(self._answered, 1)

    def _collect(self) -> bool:
        """End the batches that were sent; return False: the next pass has nothing to do."""
        with suppress(BlockingIOError):  # `settle` has taken the batch.
            os.eventfd_read(self._answered)
        while True:
            try:
                batch, results = self._done.get_nowait()
            except queue.Empty:
                return False
            batch.end(results)
