"""Statistics for GET_STATS: of this process and machine, and of all stored data. Knows no
connection and no bytes.

Statistics that the machine does not provide (not every system has `/proc`) are 0.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from braidlog.broker.topics.partition import batches_bytes
from braidlog.protocols.iggy.names import streams
from braidlog.protocols.iggy.replies import StatsReply
from braidlog.protocols.iggy.topics import KeptElsewhere, in_pieces

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.topic import Topic

PROC = Path("/proc")


@dataclass(slots=True)
class StoredTotals:
    """Totals over all topics."""

    topics: int = 0
    partitions: int = 0
    segments: int = 0
    messages: int = 0
    size_bytes: int = 0
    groups: int = 0

    def add(self, broker: Broker, topic: Topic, elsewhere: KeptElsewhere) -> None:
        """Add a topic, with the statistics of the topic's owner."""
        messages, size, segments = elsewhere.get(topic.name.full) or topic.stored_sizes()
        self.topics += 1
        self.groups += broker.named_groups.count(topic)
        self.partitions += len(topic.partitions)
        self.segments += segments
        self.messages += messages
        self.size_bytes += batches_bytes(size, segments)


async def broker_stats(broker: Broker, clients_count: int) -> StatsReply:
    """Return the record of GET_STATS."""
    stored, elsewhere = StoredTotals(), await broker.peers.stored_sizes()
    async for topic in in_pieces(broker.topics.all()):
        if not topic.deleted:
            stored.add(broker, topic, elsewhere)
    disk = shutil.disk_usage(broker.data_dir)
    cpus = os.cpu_count() or 1
    process_s = max(time.clock_gettime(time.CLOCK_MONOTONIC) - _start_s(), 0.001)
    memory = _kib_values("meminfo")
    io = _kib_values("self/io")
    return StatsReply(
        process_id=os.getpid(),
        cpu_usage=100 * time.process_time() / process_s,
        total_cpu_usage=min(100 * os.getloadavg()[0] / cpus, 100.0),
        memory_bytes=_kib_values("self/status").get("VmRSS", 0) * 1024,
        memory_total_bytes=memory.get("MemTotal", 0) * 1024,
        memory_available_bytes=memory.get("MemAvailable", 0) * 1024,
        run_time_us=int(process_s * 1_000_000),
        start_time_us=broker.now_us() - int(process_s * 1_000_000),
        read_bytes=io.get("read_bytes", 0),
        written_bytes=io.get("write_bytes", 0),
        messages_bytes=stored.size_bytes,
        streams_count=len(streams(broker)),
        topics_count=stored.topics,
        partitions_count=stored.partitions,
        segments_count=stored.segments,
        messages_count=stored.messages,
        clients_count=clients_count,
        groups_count=stored.groups,
        hostname=platform.node(),
        os_name=platform.system(),
        os_version=platform.version(),
        kernel_version=platform.release(),
        server_version=broker.version,
        server_semver=_semver(broker.version),
        cache_metrics_count=0,
        threads_count=threading.active_count(),
        disk_free_bytes=disk.free,
        disk_total_bytes=disk.total,
    )


@functools.cache
def _start_s() -> float:
    """Return the start time of this process, in seconds of the monotonic clock; the time of the
    first call if the start is unknown.
    """
    try:
        fields = (PROC / "self/stat").read_text().rpartition(")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")  # proc(5): starttime, field 22.
    except (OSError, ValueError, IndexError):
        return time.clock_gettime(time.CLOCK_MONOTONIC)


def _kib_values(path: str) -> dict[str, int]:
    """Return the `name: number` lines of a file of proc(5)."""
    try:
        lines = (PROC / path).read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    numbers = {name: value.split() for name, _, value in pairs}
    return {name: int(words[0]) for name, words in numbers.items() if words and words[0].isdigit()}


def _semver(version: str) -> int:
    """Return Iggy's number for a version: 4300 for 0.4.300."""
    parts = [int(part) for part in version.split(".")[:3] if part.isdigit()]
    major, minor, patch = (*parts, 0, 0, 0)[:3]
    return major * 1_000_000 + minor * 1_000 + patch
