"""What the broker's process used, read from /proc. Knows nothing of the broker."""

from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """Run time of all threads so far, from the scheduler's own count (nanoseconds)."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def resident_mb(pid: int) -> float:
    """Resident memory in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    raise ProcessLookupError(pid)
