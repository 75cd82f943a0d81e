"""What a goal of the table says, and whether a row meets it.

A goal is one or more of these, with `; ` between them: a number (the ratio is to be as high),
`at most` a number (the value), a number with `ms` (the value, at most) or with `k` (thousands, at
least), `CPU` and a number (microseconds of the broker a message, at most). Others compare two rows,
and are for the reader.
"""

import re

NUMBER = re.compile(r"(?P<most>at most |CPU )?(?P<number>[0-9.]+)(?P<unit> ms| k)?")


def is_met(goal: str, value: float, ratio: float | None, cpu_us: float | None) -> bool | None:
    """Whether all parts of the goal are met; None where there is one that two rows decide, or
    nothing to hold against it.
    """
    parts = [_part_met(part, value, ratio, cpu_us) for part in goal.split("; ")]
    if False in parts:
        return False
    return None if None in parts else True


def _part_met(part: str, value: float, ratio: float | None, cpu_us: float | None) -> bool | None:
    found = NUMBER.fullmatch(part)
    if found is None:
        return None
    number = float(found["number"])
    if found["most"] == "CPU ":
        return None if cpu_us is None else cpu_us <= number
    if found["most"] or found["unit"] == " ms":
        return value <= number
    if found["unit"] == " k":
        return value >= number * 1000
    return None if ratio is None else ratio >= number
