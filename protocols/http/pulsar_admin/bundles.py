"""Bundles of a namespace: ranges of the hashes of its topics' names.

Apache moves topics between brokers by bundles. Here they are stored and shown, and a call about a
bundle acts on the topics of the bundle, each partition separately. A namespace without bundles of
its own is a single bundle. Knows no route.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from zlib import crc32

from braidlog.protocols.http.errors import BAD_BODY, BAD_LIMIT, NOT_SUPPORTED, RequestRefused
from braidlog.protocols.http.pulsar_admin.answers import as_number

if TYPE_CHECKING:
    from braidlog.protocols.http.pulsar_admin.policies import Setting, Settings

SETTING: Final = "bundle_boundaries"  # Of a namespace: hexadecimal numbers, with commas.
FIELDS: Final = ("boundaries", "numBundles")
LAST_HASH: Final = 0xFFFF_FFFF  # Of CRC-32, by which Apache chooses a bundle.
WHOLE: Final = (0, LAST_HASH)
BUNDLES_MAX: Final = 1000  # A change of any setting of a namespace writes all settings.
NUMBER: Final = re.compile(r"0[xX][0-9a-fA-F]{1,8}|[0-9]{1,10}")


class Bundles:
    """The bundles of a namespace. A bundle has hashes from a boundary up to the next boundary,
    which only the last bundle includes. `names` are those of all bundles, as
    `0x00000000_0xffffffff`.
    """

    def __init__(self, settings: Settings) -> None:
        """Read the boundaries from the settings of a namespace."""
        stored = settings.get(SETTING)
        self._boundaries: Sequence[int] = (
            WHOLE if stored is None else [int(text, 16) for text in str(stored).split(",")]
        )
        bounds = pairwise(map(_text, self._boundaries))
        self.names: Sequence[str] = ["_".join(ends) for ends in bounds]

    def of(self, full_name: str) -> str:
        """Return the name of the bundle of a topic or a partition."""
        index = bisect_right(self._boundaries, crc32(full_name.encode())) - 1
        return self.names[min(index, len(self.names) - 1)]

    def shown(self) -> dict[str, object]:
        """Return the bundles as JSON."""
        texts = [_text(boundary) for boundary in self._boundaries]
        return {"boundaries": texts, "numBundles": len(texts) - 1}

    def check(self, named: str, place: str) -> str:
        """Return the name of a bundle of the path in Apache's form; `place` is the namespace.
        Raises RequestRefused if there is no such bundle.
        """
        bounds = [_number(text) for text in named.split("_")]
        if len(bounds) != 2 or None in bounds:
            raise RequestRefused(BAD_LIMIT, f"Invalid bundle range: {named[:60]}")
        start, end = (_text(bound or 0) for bound in bounds)
        for name in self.names:
            if name == f"{start}_{end}":
                return name
            if name.startswith(start):
                text = f"Invalid upper boundary for bundle {place}/{start}_{end}."
                upper = f"Expected upper boundary of {place}/{name}"
                raise RequestRefused(BAD_LIMIT, f"{text} {upper}")
        raise RequestRefused(BAD_LIMIT, f"Invalid lower boundary for bundle {place}/{start}_{end}")


def bundle_changes(body: object) -> dict[str, Setting | None]:
    """Return the settings of a new namespace with the bundles of a body: a number of bundles of the
    same size, or their boundaries. Raises RequestRefused.
    """
    fields: Mapping[str, object] = body if isinstance(body, dict) else {}
    count, texts = as_number(fields.get("numBundles")), fields.get("boundaries")
    is_list = texts is None or isinstance(texts, list)
    if not isinstance(body, dict) or not is_list or type(count) not in (int, type(None)):
        raise RequestRefused(BAD_BODY, f"bundles: expected {' and '.join(FIELDS)}")
    if not isinstance(count, int) or count <= 0:
        if texts:  # Apache drops boundaries without a number.
            raise RequestRefused(NOT_SUPPORTED, "bundles: boundaries need numBundles above 0")
        return {}
    if isinstance(texts, list) and texts:
        boundaries = sorted({_boundary(text) for text in texts})
        if (boundaries[0], boundaries[-1]) != WHOLE:
            ends = f"first:{_text(boundaries[0])}, last:{_text(boundaries[-1])}"
            text = "Input bundles do not cover the whole hash range."
            raise RequestRefused(BAD_BODY, f"{text} {ends}")
    else:
        size = (LAST_HASH + 1) // max(count, 1)
        boundaries = [*(number * size for number in range(min(count, BUNDLES_MAX + 1))), LAST_HASH]
    if len(boundaries) - 1 > BUNDLES_MAX:
        raise RequestRefused(NOT_SUPPORTED, f"bundles: a namespace has at most {BUNDLES_MAX} here")
    if tuple(boundaries) == WHOLE:
        return {}
    return {SETTING: ",".join(f"{boundary:x}" for boundary in boundaries)}


def _boundary(value: object) -> int:
    number = _number(value) if isinstance(value, str) else None
    if number is None:
        raise RequestRefused(BAD_BODY, "bundles: a boundary is a text as 0x80000000")
    return number


def _number(text: str) -> int | None:
    """Return the number of a boundary, decimal or hexadecimal; None for another text."""
    if not NUMBER.fullmatch(text):
        return None
    number = int(text, 16 if text[:2].lower() == "0x" else 10)
    return number if number <= LAST_HASH else None


def _text(boundary: int) -> str:
    return f"0x{boundary:08x}"
