"""Goals of the table, and the check of a row against a goal.

A goal has parts, with `; ` between them. A part is a number (minimum ratio), `at most` and a number
(maximum value), a number with `ms` (maximum value) or with `k` (minimum value in thousands), or
`CPU` and a number (maximum broker microseconds per message). Other parts compare two rows and are
left to the reader.
"""

import re

NUMBER = re.compile(r"(?P<most>at most |CPU )?(?P<number>[0-9.]+)(?P<unit> ms| k)?")


def is_met(goal: str, value: float, ratio: float | None, cpu_us: float | None) -> bool | None:
    """Return True if all parts of the goal are met; None if a part compares two rows or cannot be
    checked.
    """
    parts = [_part_met(part, value, ratio, cpu_us) for part in goal.split("; ")]
    if False in parts:
        return False
    return None if None in parts else True


def _part_met(part: str, value: float, ratio: float | None, cpu_us: float | None) -> bool | None:
    match = NUMBER.fullmatch(part)
    if match is None:
        return None
    number = float(match["number"])
    if match["most"] == "CPU ":
        return None if cpu_us is None else cpu_us <= number
    if match["most"] or match["unit"] == " ms":
        return value <= number
    if match["unit"] == " k":
        return value >= number * 1000
    return None if ratio is None else ratio >= number
