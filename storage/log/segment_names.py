"""Names of a partition's segment files, and which of the files count (FORMAT.md sections 1 and 12).

The name of a compacted file gives its beginning, its end and its generation: the file replaces
every file of a lower generation that begins within it. Opens no file.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

LOG_SUFFIX = ".log"
BASE_DIGITS = 20
VIEW_SUFFIX = ".view"

_PLAIN = re.compile(rf"([0-9]{{{BASE_DIGITS}}})\{LOG_SUFFIX}")
_COMPACTED = re.compile(
    rf"([0-9]{{{BASE_DIGITS}}})-([0-9]{{{BASE_DIGITS}}})-([1-9][0-9]{{0,9}})"
    rf"(\{LOG_SUFFIX}|\{VIEW_SUFFIX})"
)


@dataclass(slots=True, frozen=True, order=True)
class SegmentName:
    """A segment file by its name; `end_offset` is 0 where the name has no end offset."""

    base_offset: int
    generation: int = 0
    end_offset: int = 0
    suffix: str = LOG_SUFFIX

    @property
    def file_name(self) -> str:
        """The name itself."""
        if not self.generation:
            return f"{self.base_offset:0{BASE_DIGITS}d}{LOG_SUFFIX}"
        span = f"{self.base_offset:0{BASE_DIGITS}d}-{self.end_offset:0{BASE_DIGITS}d}"
        return f"{span}-{self.generation}{self.suffix}"

    def replaces(self, other: "SegmentName") -> bool:
        """Return True if this file took the other file's place."""
        begins_within = self.base_offset <= other.base_offset < self.end_offset
        return begins_within and self.generation > other.generation


def parse_name(name: str) -> SegmentName | None:
    """Parse a file name; return None unless it names a segment or a view."""
    if match := _PLAIN.fullmatch(name):
        return SegmentName(int(match[1]))
    if match := _COMPACTED.fullmatch(name):
        base, end = int(match[1]), int(match[2])
        return SegmentName(base, int(match[3]), end, match[4]) if base < end else None
    return None


def segment_names(names: Iterable[str]) -> tuple[list[SegmentName], list[SegmentName]]:
    """Among the names of a folder, the segments that count, by offset; and the replaced segments,
    the latest first.
    """
    log_names = _with_suffix(names, LOG_SUFFIX)
    compacted = [name for name in log_names if name.generation]
    if not compacted:
        return log_names, []
    replaced = {name for name in log_names if any(other.replaces(name) for other in compacted)}
    return [name for name in log_names if name not in replaced], sorted(replaced, reverse=True)


def view_names(names: Iterable[str]) -> list[SegmentName]:
    """The compacted views among names of a folder, the newest first."""
    return sorted(_with_suffix(names, VIEW_SUFFIX), key=lambda name: -name.generation)


def _with_suffix(names: Iterable[str], suffix: str) -> list[SegmentName]:
    parsed = (parse_name(name) for name in names if name.endswith(suffix))
    return sorted(log_name for log_name in parsed if log_name is not None)
