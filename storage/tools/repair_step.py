"""The steps of `log repair`, shown before any step runs."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class RepairStep:
    """A change. `lines` describe the change to people, and first of all its losses.

    `apply` runs the change; after a kill at any moment, a repair can be run again. Raises:
    StorageError.
    """

    log: str
    lines: list[str]
    apply: Callable[[], None]


@dataclass(slots=True)
class RepairPlan:
    """All steps of a repair in order, refusals for what no step can repair, and warnings."""

    steps: list[RepairStep] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # About matters that no repair can decide.


def offsets_text(offset: int, next_offset: int) -> str:
    """Return a half-open range of offsets as people say it."""
    if next_offset <= offset + 1:
        return f"offset {offset}"
    return f"offsets {offset} to {next_offset - 1}"
