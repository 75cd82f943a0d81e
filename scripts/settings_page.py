"""Write the table of topic settings in docs/api.md again, from the rows of the code.

Run by `make settings-page` after a change of `broker/topics/settings_table.py`.
"""

import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import msgspec

from braidlog.broker.topics.settings_table import TOPIC_SETTINGS, TopicSetting

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"
HEAD = "| setting | values | default | Kafka | Pulsar's policy | Iggy | effect |"
UNITS = {"bytes": "bytes", "ms": "ms", "s": "s", "ppm": "millionths"}


def lines() -> Iterator[str]:
    """Yield the lines of the table."""
    yield HEAD
    yield "| " + " | ".join(["---"] * (HEAD.count("|") - 1)) + " |"
    for row in TOPIC_SETTINGS.values():
        names = (f"`{name}`" if name else "" for name in (row.kafka, row.pulsar, row.iggy))
        cells = (f"`{row.name}`", values(row), default(row), *names, row.effect)
        yield "| " + " | ".join(cells) + " |"


def values(row: TopicSetting) -> str:
    """Return the possible values of a setting."""
    if row.is_switch:
        return "`true`, `false`"
    if row.choices:
        return ", ".join(f"`{choice}`" for choice in row.choices)
    number = next(filter(None, map(bounds, (row.hint, *typing.get_args(row.hint)))), None)
    if number is None:
        return "a name or `none`"
    low, high = number
    text = UNITS[row.name.rpartition("_")[2]]
    if low:
        text += f", at least {low}"
    if high is not None:
        text += f", at most {high}"
    return f"{text}; `none`" if row.is_limit else text


def bounds(hint: object) -> tuple[int, int | None] | None:
    """Return the lowest and the highest number of an annotation; None for other annotations."""
    for meta in getattr(hint, "__metadata__", ()):
        if isinstance(meta, msgspec.Meta):
            return int(meta.ge or 0), None if meta.le is None else int(meta.le)
    return None


def default(row: TopicSetting) -> str:
    """Return the default of a setting; the broker's own settings have their defaults elsewhere."""
    if row.broker:
        return f"`{row.broker}`"
    value = row.default.value if isinstance(row.default, Enum) else row.default
    return "none" if value is None else str(value).lower()


def main() -> None:
    """Replace the table in the page."""
    before, _, rest = PAGE.read_text().partition(HEAD)
    after = rest.partition("\n\n")[2]
    PAGE.write_text(before + "\n".join(lines()) + "\n\n" + after)


if __name__ == "__main__":
    main()
