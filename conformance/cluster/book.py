"""The clients' actions and answers in a run: a history per topic, shared by threads.

At the end, the book checks the rules that hold for all histories.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from conformance.history.checker import check
from conformance.history.events import EventHistory, PositionMove, RequestOutcome, SentValue

# Offset and value of every record of a topic, as a protocol returns them.
Log = Sequence[tuple[int, bytes]]


class Book:
    """Written by clients; judged after the clients have stopped."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.topics = list(topics)
        self.acknowledged: Counter[str] = Counter()  # Values, by kind of the writer.
        self.progress: Counter[str] = Counter()  # A client's other successes, by kind.
        self.resized = ""  # The topic that grows and shrinks now.
        self.received: dict[str, dict[str, set[bytes]]] = defaultdict(lambda: defaultdict(set))
        self.doubled: list[str] = []
        self._groups: dict[str, tuple[str, set[str]]] = {}  # Group: reader and topics.
        self._moves: set[tuple[str, str]] = set()  # Groups and topics with known moves.
        self._histories = {topic: EventHistory() for topic in topics}
        self._lock = threading.Lock()
        self._awaited: set[str] = set()
        self._awaited_since_s = 0.0
        self._delays: list[float] = []
        self._newest: dict[str, bytes] = {}  # The first value acknowledged since `watch`, by topic.

    # Written by clients.

    def sending(self, topic: str, writer: str, values: Sequence[bytes]) -> list[SentValue]:
        """Record values before they are sent."""
        with self._lock:
            return [self._histories[topic].send(writer, value) for value in values]

    def stored(self, topic: str, sent: Sequence[SentValue], offsets: Sequence[int | None]) -> None:
        """Record acknowledged values; offsets if the protocol returns them."""
        with self._lock:
            for record, offset in zip(sent, offsets, strict=True):
                self._histories[topic].answer(record, RequestOutcome.DONE, offset)
                kind = record.writer.rpartition(".")[0]
                self.acknowledged[kind] += 1
                self.progress[kind] += 1
                self._newest.setdefault(topic, record.value)
            if topic in self._awaited:
                self._awaited.discard(topic)
                self._delays.append(time.monotonic() - self._awaited_since_s)

    def moving(self, reader: str, topic: str, group: str, position: int) -> PositionMove:
        """Record a move of a group before the request."""
        with self._lock:
            self._groups.setdefault(group, (reader, set()))[1].add(topic)
            self._moves.add((group, topic))
            return self._histories[topic].move(group, position)

    def moved(self, topic: str, moved: PositionMove) -> None:
        """Record that the move was acknowledged."""
        with self._lock:
            self._histories[topic].moved(moved)

    def reads(self, reader: str, topic: str, group: str, values: Sequence[bytes]) -> None:
        """Record a reader's received values; they must include all values that the group's position
        passes.
        """
        with self._lock:
            self._groups.setdefault(group, (reader, set()))[1].add(topic)
            self.received[reader][topic].update(values)
            self.progress[reader] += len(values)

    def goes_on(self, kind: str) -> None:
        """Record another success of a client of that kind."""
        with self._lock:
            self.progress[kind] += 1

    # Progress of clients after a fault.

    def watch(self) -> dict[str, int]:
        """Begin to watch; return the progress so far."""
        with self._lock:
            self._newest = {}
            return dict(self.progress)

    def missing(self, reader: str, topics: Sequence[str]) -> list[str]:
        """Return the topics of which a reader has received no value acknowledged since `watch`."""
        with self._lock:
            newest, received = self._newest, self.received[reader]
            return [topic for topic in topics if newest.get(topic, None) not in received[topic]]

    # The length of a fault for clients.

    def await_topics(self, topics: Sequence[str]) -> None:
        """From now on, measure the time until each of these topics acknowledges a value."""
        with self._lock:
            self._awaited, self._awaited_since_s = set(topics), time.monotonic()

    def awaited(self) -> list[str]:
        """Return the topics that have acknowledged nothing so far."""
        with self._lock:
            return sorted(self._awaited)

    def take_delays(self) -> list[float]:
        """Return the seconds of each topic that has acknowledged a value meanwhile."""
        with self._lock:
            delays, self._delays, self._awaited = self._delays, [], set()
            return delays

    # At the end.

    @property
    def groups(self) -> Iterator[tuple[str, str]]:
        """Yield every group and topic that has a position."""
        for group, (_, topics) in self._groups.items():
            for topic in topics:
                yield group, topic

    def keep(self, folder: Path) -> None:
        """Write every topic's history to a file, a line per event."""
        for topic, history in self._histories.items():
            lines = "".join(f"{event}\n" for event in history.events)
            (folder / f"{topic}.history").write_text(lines)

    def judge(
        self, logs: Mapping[str, Mapping[str, Log]], positions: Mapping[tuple[str, str], int]
    ) -> list[str]:
        """Return every fault in the clients' answers.

        `logs` are whole logs by reader and topic, `positions` by group and topic, -1 for none.
        """
        faults = list(self.doubled)
        for topic, history in self._histories.items():
            for (group, of), position in positions.items():
                if of == topic and (group, topic) in self._moves:
                    history.position_read(group, max(position, 0), "kafka")
            for reader, log_of in logs.items():
                records = log_of[topic]
                end = records[-1][0] + 1 if records else 0
                history.read(reader, (0, end), records, whole=True)
            faults += [f"{topic}: {fault}" for fault in check(history)]
        first = next(iter(logs.values()))
        for (group, topic), position in positions.items():
            reader, _ = self._groups[group]
            unread = [
                value
                for offset, value in first[topic]
                if offset < position and value not in self.received[reader][topic]
            ]
            if unread:
                faults.append(
                    f"{topic}: {group} is at {position}, but {reader} was never given {unread[:5]}"
                )
        return faults
