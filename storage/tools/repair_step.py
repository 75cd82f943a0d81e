"""What `log repair` is going to do, shown before anything is done."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Step:
    """One change. `lines` tell people what it does and, first of all, what is lost.

    `apply` does it; killed at any moment, a repair can be run again. Raises: StorageError.
    """

    log: str
    lines: list[str]
    apply: Callable[[], None]


@dataclass(slots=True)
class Plan:
    """Everything that a repair would do, in that order, what it cannot do, and warnings."""

    steps: list[Step] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # Of what no repair can decide.


def offsets_text(offset: int, next_offset: int) -> str:
    """A half-open range of offsets as people say it."""
    if next_offset <= offset + 1:
        return f"offset {offset}"
    return f"offsets {offset} to {next_offset - 1}"
