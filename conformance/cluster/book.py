"""What the clients of a run did and were told: a history for each topic, which threads share, and
what must hold of all of them at the end.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from conformance.history.checker import check
from conformance.history.events import History, Moved, Outcome, Sent

# Offset and value of every record of a topic, as one protocol gives them.
Log = Sequence[tuple[int, bytes]]


class Book:
    """Written by clients; judged once they have stopped."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.topics = list(topics)
        self.acknowledged: Counter[str] = Counter()  # Values, by kind of the writer.
        self.progress: Counter[str] = Counter()  # Whatever a client succeeded in, by its kind.
        self.resized = ""  # The topic that grows and shrinks now.
        self.received: dict[str, dict[str, set[bytes]]] = defaultdict(lambda: defaultdict(set))
        self.doubled: list[str] = []
        self._groups: dict[str, tuple[str, set[str]]] = {}  # Group: its reader, its topics.
        self._moves: set[tuple[str, str]] = set()  # Groups and topics whose moves are known.
        self._histories = {topic: History() for topic in topics}
        self._lock = threading.Lock()
        self._awaited: set[str] = set()
        self._awaited_since_s = 0.0
        self._delays: list[float] = []
        self._newest: dict[str, bytes] = {}  # The first value acknowledged since `watch`, by topic.

    # Written by clients.

    def sending(self, topic: str, writer: str, values: Sequence[bytes]) -> list[Sent]:
        """Values that are about to be sent once."""
        with self._lock:
            return [self._histories[topic].send(writer, value) for value in values]

    def stored(self, topic: str, sent: Sequence[Sent], offsets: Sequence[int | None]) -> None:
        """They were acknowledged; where, if the protocol says."""
        with self._lock:
            for one, offset in zip(sent, offsets, strict=True):
                self._histories[topic].answer(one, Outcome.DONE, offset)
                kind = one.writer.rpartition(".")[0]
                self.acknowledged[kind] += 1
                self.progress[kind] += 1
                self._newest.setdefault(topic, one.value)
            if topic in self._awaited:
                self._awaited.discard(topic)
                self._delays.append(time.monotonic() - self._awaited_since_s)

    def moving(self, reader: str, topic: str, group: str, position: int) -> Moved:
        """A group is about to be moved."""
        with self._lock:
            self._groups.setdefault(group, (reader, set()))[1].add(topic)
            self._moves.add((group, topic))
            return self._histories[topic].move(group, position)

    def moved(self, topic: str, moved: Moved) -> None:
        """It was acknowledged."""
        with self._lock:
            self._histories[topic].moved(moved)

    def reads(self, reader: str, topic: str, group: str, values: Sequence[bytes]) -> None:
        """A reader was given these; whatever its group's position passes must be among them."""
        with self._lock:
            self._groups.setdefault(group, (reader, set()))[1].add(topic)
            self.received[reader][topic].update(values)
            self.progress[reader] += len(values)

    def goes_on(self, kind: str) -> None:
        """A client of that kind succeeded in something else."""
        with self._lock:
            self.progress[kind] += 1

    # Whether clients go on after a fault.

    def watch(self) -> dict[str, int]:
        """Begin to watch; returns the progress so far."""
        with self._lock:
            self._newest = {}
            return dict(self.progress)

    def missing(self, reader: str, topics: Sequence[str]) -> list[str]:
        """The topics of which a reader has received nothing that was acknowledged since `watch`."""
        with self._lock:
            newest, received = self._newest, self.received[reader]
            return [one for one in topics if newest.get(one, None) not in received[one]]

    # How long a fault lasts for clients.

    def await_topics(self, topics: Sequence[str]) -> None:
        """From now on it is measured how long each of these topics acknowledges nothing."""
        with self._lock:
            self._awaited, self._awaited_since_s = set(topics), time.monotonic()

    def awaited(self) -> list[str]:
        """Those that have acknowledged nothing so far."""
        with self._lock:
            return sorted(self._awaited)

    def take_delays(self) -> list[float]:
        """Seconds of each topic that has acknowledged something meanwhile."""
        with self._lock:
            delays, self._delays, self._awaited = self._delays, [], set()
            return delays

    # At the end.

    @property
    def groups(self) -> Iterator[tuple[str, str]]:
        """Every group and topic that has a position."""
        for group, (_, topics) in self._groups.items():
            for topic in topics:
                yield group, topic

    def keep(self, folder: Path) -> None:
        """Write every topic's history down, an event a line."""
        for topic, history in self._histories.items():
            lines = "".join(f"{event}\n" for event in history.events)
            (folder / f"{topic}.history").write_text(lines)

    def judge(
        self, logs: Mapping[str, Mapping[str, Log]], positions: Mapping[tuple[str, str], int]
    ) -> list[str]:
        """Every fault in what the clients were told. `logs` are whole ones by reader and topic,
        `positions` by group and topic, -1 for none.
        """
        faults = list(self.doubled)
        for topic, history in self._histories.items():
            for (group, of), position in positions.items():
                if of == topic and (group, topic) in self._moves:
                    history.told(group, max(position, 0), "kafka")
            for reader, found in logs.items():
                records = found[topic]
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
