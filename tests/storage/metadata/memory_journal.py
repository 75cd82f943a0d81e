"""A journal in memory with the interface of the real journal; it can be full, and be reopened."""

from collections.abc import Iterable, Iterator

from braidlog.storage.errors import DamagedLog, StorageFull


class MemoryJournal:
    def __init__(self, records: Iterable[bytes] = ()):
        self.records = list(records)
        self._bytes = sum(map(len, self.records))
        self.snapshots = 0
        self.snapshot_bytes = 0
        self.ticket = 0
        self.lazy = 0
        self.full = False
        self.last_place = len(self.records) - 1
        self.extra_bytes = 0
        """Makes it look longer than it is, until the next snapshot."""

    @property
    def size_bytes(self) -> int:
        return self._bytes + self.extra_bytes

    def replay(self) -> Iterator[bytes]:
        yield from self.records

    def damage(self, reason: str) -> DamagedLog:
        return DamagedLog("memory", 0, 0, reason)

    def append(self, body: bytes) -> int:
        self._add(body)
        self.ticket += 1
        return self.ticket

    def append_lazy(self, body: bytes) -> None:
        self._add(body)
        self.lazy += 1

    def snapshot(self, bodies: Iterable[bytes]) -> None:
        if self.full:
            raise StorageFull
        self.records = list(bodies)
        self.last_place += len(self.records)
        self._bytes = sum(map(len, self.records))
        self.extra_bytes = 0
        self.snapshots += 1
        self.snapshot_bytes = self.size_bytes

    def reopened(self) -> "MemoryJournal":
        return MemoryJournal(self.records)

    def _add(self, body: bytes) -> None:
        if self.full:
            raise StorageFull
        self.records.append(bytes(body))
        self.last_place += 1
        self._bytes += len(body)
