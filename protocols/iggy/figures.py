"""Figures for GET_STATS: of this process and machine, and of everything stored. Knows no connection
and no bytes.

What the machine does not tell (there is no `/proc` on every system) is 0.
"""

from __future__ import annotations

import functools
import os
import platform
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from protocols.iggy.messages import Stats
from protocols.iggy.names import streams

if TYPE_CHECKING:
    from broker.broker import Broker

PROC = Path("/proc")
DISTRIBUTION = "braidlog"


def broker_figures(broker: Broker, clients_count: int) -> Stats:
    """The record of GET_STATS."""
    topics = broker.topics.all()
    partitions = [partition for topic in topics for partition in topic.partitions]
    cpus = os.cpu_count() or 1
    process_s = max(time.clock_gettime(time.CLOCK_MONOTONIC) - _start_s(), 0.001)
    memory = _kib_figures("meminfo")
    io = _kib_figures("self/io")
    version = metadata.version(DISTRIBUTION)
    return Stats(
        process_id=os.getpid(),
        cpu_usage=100 * time.process_time() / process_s,
        total_cpu_usage=min(100 * os.getloadavg()[0] / cpus, 100.0),
        memory_bytes=_kib_figures("self/status").get("VmRSS", 0) * 1024,
        memory_total_bytes=memory.get("MemTotal", 0) * 1024,
        memory_available_bytes=memory.get("MemAvailable", 0) * 1024,
        run_time_us=int(process_s * 1_000_000),
        start_time_us=broker.now_us() - int(process_s * 1_000_000),
        read_bytes=io.get("read_bytes", 0),
        written_bytes=io.get("write_bytes", 0),
        messages_bytes=sum(partition.log.size_bytes for partition in partitions),
        streams_count=len(streams(broker)),
        topics_count=len(topics),
        partitions_count=len(partitions),
        segments_count=sum(len(partition.log.segments()) for partition in partitions),
        messages_count=sum(
            partition.high_watermark - partition.log_start_offset for partition in partitions
        ),
        clients_count=clients_count,
        groups_count=sum(len(broker.catalogue.groups(topic.meta.topic_id)) for topic in topics),
        hostname=platform.node(),
        os_name=platform.system(),
        os_version=platform.version(),
        kernel_version=platform.release(),
        server_version=version,
        server_semver=_semver(version),
        cache_metrics_count=0,
    )


@functools.cache
def _start_s() -> float:
    """When this process began, in seconds of the monotonic clock; the first call's time where
    nobody tells.
    """
    try:
        fields = (PROC / "self/stat").read_text().rpartition(")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")  # proc(5): starttime, field 22.
    except (OSError, ValueError, IndexError):
        return time.clock_gettime(time.CLOCK_MONOTONIC)


def _kib_figures(path: str) -> dict[str, int]:
    """The `name: number` lines of a file of proc(5)."""
    try:
        lines = (PROC / path).read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    numbers = {name: value.split() for name, _, value in pairs}
    return {name: int(words[0]) for name, words in numbers.items() if words and words[0].isdigit()}


def _semver(version: str) -> int:
    """Iggy's number for a version: 4300 for 0.4.300."""
    parts = [int(part) for part in version.split(".")[:3] if part.isdigit()]
    major, minor, patch = (*parts, 0, 0, 0)[:3]
    return major * 1_000_000 + minor * 1_000 + patch
