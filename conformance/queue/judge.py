"""Judges the events of all workers, in the order of their times, at the end of a run.

Knows no client and no broker.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass, field
from typing import IO, Final

RECONNECT_NS: Final = 10 * 1_000_000_000
DELIVERIES_MAX: Final = 5  # Kafka's group.share.delivery.count.limit
EVENT_FIELDS: Final = 4
Event = tuple[int, str, str, int, int]  # time, event, value, delivery count, worker


@dataclass(slots=True)
class Judge:
    """The events of a run."""

    events: list[Event] = field(default_factory=list)
    kills: list[int] = field(default_factory=list)  # Times at which the broker was killed,
    starts: list[int] = field(default_factory=list)  # and at which the next broker was ready.
    ends: dict[int, int] = field(default_factory=dict)  # Worker -> time of its end.
    done: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)  # Values in the dead letter topic.
    ahead: set[int] = field(default_factory=set)  # Workers whose clients receive ahead.
    failed: dict[int, str] = field(default_factory=dict)  # Worker -> error by which it ended.

    def read(self, number: int, stream: IO[bytes]) -> None:
        """Take the events of a worker until its end. A killed worker may leave half a line."""
        for line in stream:
            parts = line.decode().split()
            if len(parts) == EVENT_FIELDS and line.endswith(b"\n"):
                at, event, value, count = parts
                self.events.append((int(at), event, value, int(count), number))
                if event == "D":
                    self.done.add(value)

    def verdict(self, values: Set[str]) -> list[str]:
        """Return the faults."""
        self._end_failed_workers()
        faults: list[str] = []
        last: dict[str, tuple[str, int]] = {}  # Value -> event, worker.
        holder: dict[str, tuple[int, int]] = {}  # Value -> worker, time.
        acked: set[str] = set()
        seen: dict[str, list[int]] = defaultdict(list)
        late: dict[str, set[int]] = defaultdict(set)  # Value -> reconnecting workers.
        for at, event, value, count, number in sorted(self.events):
            held = holder.get(value)
            if event == "L" and held is not None and held[0] != number:
                continue  # From a worker whose lock had ended.
            last[value] = event, number
            is_reconnecting = self._is_reconnecting(number, at)
            if event == "R":
                if is_reconnecting:
                    late[value].add(number)
                    continue
                if held is not None and held[0] != number and self._lives(*held, at):
                    faults.append(f"{value}: held by {held[0]} and by {number}")
                if value in acked:
                    faults.append(f"{value}: received by {number} after its acknowledgement")
                if count:
                    faults += self._count_faults(value, count, seen[value], at)
                seen[value].append(at)
                holder[value] = number, at
            else:
                holder.pop(value, None)
            if event == "D" and not is_reconnecting:
                acked.add(value)
        for value in sorted(values - self.done - self.dead):
            event, number = last.get(value, ("none", 0))
            # A client sends the acknowledgements of its reconnection to the next broker, which
            # takes them; a worker that was killed before it said so has no event for it.
            if late[value] & self.ends.keys():
                continue
            # A worker that was killed may have acknowledged the values that it held last.
            if event != "R" or (number not in self.ends and not self.starts):
                faults.append(f"{value}: never acknowledged, last event {event} of {number}")
        return faults

    def _end_failed_workers(self) -> None:
        """Let each failed worker end at its last event: the broker may have released its records at
        any time since then, before the worker received its error or the run found its end.
        """
        lasts: dict[int, int] = {}
        for at, _, _, _, number in self.events:
            if number in self.failed and at > lasts.get(number, 0):
                lasts[number] = at
        for number in self.failed:
            self.ends[number] = lasts.get(number, self.ends[number])

    def _count_faults(self, value: str, count: int, seen: list[int], at: int) -> list[str]:
        """Return the faults of a share member's delivery count; `seen` are earlier deliveries."""
        if count > DELIVERIES_MAX:
            return [f"{value}: delivery count {count} above the limit of {DELIVERIES_MAX}"]
        index = bisect_left(self.starts, at)
        last_start = self.starts[index - 1] if index else 0
        before = sum(time_ns > last_start for time_ns in seen)
        if count < before + 1:
            return [f"{value}: delivery count {count} after {before} deliveries"]
        return []

    def history(self, value: str) -> str:
        """Return the events of a value, and the kills and starts of the broker in between."""
        own = [event for event in self.events if event[2] == value]
        events = [(at, f"{event}{number}") for at, event, _, _, number in own]
        numbers = {event[-1] for event in own}
        events += [(self.ends[number], f"end{number}") for number in numbers & self.ends.keys()]
        first = min((at for at, _ in events), default=0)
        events += [(at, "kill") for at in self.kills if at > first]
        events += [(at, "start") for at in self.starts if at > first]
        return " ".join(f"{(at - first) / 1e9:.2f}:{text}" for at, text in sorted(events)[:30])

    def _is_reconnecting(self, number: int, at: int) -> bool:
        """Return True if the broker was killed shortly before an event of a worker that receives
        ahead. While the client reconnects, it hands out messages of the broker before, and
        acknowledges them to the next broker.
        """
        index = bisect_left(self.kills, at)
        return bool(index) and number in self.ahead and at < self.starts[index - 1] + RECONNECT_NS

    def _lives(self, number: int, since: int, now: int) -> bool:
        """Return True if the worker and the broker lived from `since` to `now`. Until a broker is
        ready, clients hand out records of the broker before.
        """
        if self.ends.get(number, now + 1) <= now:
            return False
        index = bisect_left(self.starts, since)
        return index == len(self.starts) or self.starts[index] > now
