"""Sizes and times as people write them in settings: `128MiB`, `7d`. Knows no setting."""

import re

SIZES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """Return the bytes of `134217728`, `128MiB` (or `128M`), `1.5 GB`. Raises ValueError."""
    number, unit = _split(text, "a size such as 1048576, 128MiB or 10GB")
    if unit not in SIZES:
        raise ValueError(
            f"{text!r} is not a size: the unit may be B, kB, MB, GB, KiB, MiB, GiB or TiB"
        )
    return round(number * SIZES[unit])


def parse_seconds(text: str, *, unit: str) -> float:
    """Return the seconds of `250ms`, `25s`, `10m`, `12h`, `7d`; a bare number counts in `unit`.

    Raises ValueError.
    """
    number, written_unit = _split(text, "a time such as 250ms, 30s, 12h or 7d")
    if (written_unit or unit) not in SECONDS:
        raise ValueError(f"{text!r} is not a length of time: the unit may be ms, s, m, h, d or w")
    return number * SECONDS[written_unit or unit]


def _split(text: str, wanted: str) -> tuple[float, str]:
    match = QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not {wanted}")
    return float(match[1]), match[2].lower()
