"""Write the generated tables of docs/api.md again: topic settings, and calls of Pulsar's admin API.

Run by `make api-page` after a change of `broker/topics/settings_table.py` or of a route.
"""

import typing
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import trio

from braidlog.broker.broker import Broker
from braidlog.broker.config.settings import Config
from braidlog.broker.topics.settings_table import TOPIC_SETTINGS
from braidlog.broker.topics.topic_setting import TopicSetting
from braidlog.protocols.http.areas import area_of
from braidlog.protocols.http.bodies import Bodies
from braidlog.protocols.http.options import RestOptions
from braidlog.protocols.http.pulsar_admin.paths import ADMIN, NAMESPACE
from braidlog.protocols.http.pulsar_admin.table import admin_routes
from braidlog.protocols.http.routes import Routes

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"
SETTINGS_HEAD = "| setting | values | default | Kafka | Pulsar's policy | Iggy | effect |"
ADMIN_HEAD = "| area | calls |"
UNITS = {"bytes": "bytes", "ms": "ms", "s": "s", "ppm": "millionths"}


def setting_rows() -> Iterator[str]:
    """Yield a row for each setting of a topic."""
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
    text = UNITS.get(row.name.rpartition("_")[2], "a number")
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


def admin_rows(broker: Broker) -> Iterator[str]:
    """Yield a row for each area of Pulsar's admin API, with the methods of every path."""
    options, routes = RestOptions(), Routes(broker)
    admin_routes(broker, options, Bodies.of(options, broker.stopping).of_others, routes)
    areas: dict[str, list[str]] = {}
    for path, methods in routes.described:
        if not path.endswith("{rest:path}"):
            calls = areas.setdefault(area_of(path).name.removeprefix("Pulsar admin: "), [])
            calls.append(f"`{', '.join(methods)} {shortened(path)}`")
    for area, calls in areas.items():
        yield f"| {area} | {'; '.join(calls)} |"


def shortened(path: str) -> str:
    """Return a path with the page's abbreviations."""
    return path.removeprefix(ADMIN).replace(NAMESPACE + "/{name}", "T").replace(NAMESPACE, "N")


def table(head: str, rows: Iterable[str]) -> str:
    """Return a table as the page shows it."""
    rule = "| " + " | ".join(["---"] * (head.count("|") - 1)) + " |"
    return "\n".join([head, rule, *rows])


def shown(head: str, page: str) -> str:
    """Return the table with that head that the page shows."""
    return head + page.partition(head)[2].partition("\n\n")[0]


async def main() -> None:
    """Replace the tables in the page."""
    page = PAGE.read_text()
    with TemporaryDirectory() as folder:
        broker = Broker.open(Config(data_dir=folder))
        for head, rows in ((SETTINGS_HEAD, setting_rows()), (ADMIN_HEAD, admin_rows(broker))):
            page = page.replace(shown(head, page), table(head, rows))
    PAGE.write_text(page)


if __name__ == "__main__":
    trio.run(main)
