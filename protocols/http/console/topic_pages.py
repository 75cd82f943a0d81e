"""Pages of topics: the list, and a topic's partitions, settings, producers and readers."""

from __future__ import annotations

import msgspec

from braidlog.broker.topics.settings import row_of
from braidlog.broker.topics.settings_table import TOPIC_SETTINGS
from braidlog.broker.topics.topic_setting import TopicSetting
from braidlog.protocols.http.console.growth import Growth
from braidlog.protocols.http.console.inside import ApiError
from braidlog.protocols.http.console.shown_messages import parsed, pretty
from braidlog.protocols.http.console.visits import API, Page, Visit
from braidlog.protocols.http.management.messages import TopicDetail, TopicPage, TopicSummary
from braidlog.protocols.http.management.overview import ConnectionPage
from braidlog.protocols.http.management.topics import SORTS

TOPICS_SHOWN = 100  # On a page of the list.
PARTITIONS_SHOWN = 100  # On a topic's page, from `from` on.
PRODUCERS_SHOWN = 100
WRITERS_SHOWN = 100
SCHEMA_CHARACTERS_SHOWN = 64 * 1024


class ListedProducer(msgspec.Struct, rename="camel"):
    """An open producer, as Pulsar's statistics describe producers."""

    producer_name: str = ""
    address: str = ""
    client_version: str = ""
    connected_since: str = ""


class Producers(msgspec.Struct):
    """The part of Pulsar's statistics with the producers."""

    publishers: list[ListedProducer] = []


class TopicSchema(msgspec.Struct):
    """A version of a topic's schema, as Pulsar's admin API describes schemas."""

    version: int
    type: str
    data: str
    properties: dict[str, str]


class ShownSetting(msgspec.Struct):
    """A setting of a topic; `is_changed` if the topic has a value of its own."""

    name: str
    value: str
    effect: str
    is_changed: bool


class TopicPages:
    """The list of topics, which remembers log ends to tell the rates."""

    def __init__(self, growth: Growth) -> None:
        self._growth = growth

    async def show_topics(self, visit: Visit) -> Page:
        """The topics that the user may see, a page at a time by name or by size."""
        contains, after = visit.query("contains"), visit.query("after")
        sort = visit.query("sort") or SORTS[0]
        page = await visit.api.get(
            f"{API}/topics",
            TopicPage,
            limit=TOPICS_SHOWN,
            after=after or None,
            contains=contains or None,
            sort=sort,
        )
        values = {
            "topics": page.topics,
            "rates": [self._rate(topic) for topic in page.topics],
            "next": page.next,
            "after": after,
            "contains": contains,
            "sort": sort,
        }
        return Page("topics.html", values)

    def _rate(self, topic: TopicSummary) -> float | None:
        """Return the records stored per second since an earlier look, if known."""
        if topic.ends is None:
            return None
        per_s = self._growth.per_s(("topic", topic.name), topic.ends)
        return None if per_s is None else max(per_s, 0.0)


async def show_topic(visit: Visit) -> Page:
    """A topic: bounds of its partitions, settings, schema, producers and readers."""
    topic = await visit.api.get(f"{API}/topics/{visit.topic}", TopicDetail)
    first = visit.number("from", 0)
    shown = topic.partitions[first : first + PARTITIONS_SHOWN]
    producers = await _producers(visit, topic)
    writers = await visit.api.get(
        f"{API}/topics/{visit.topic}/writers", ConnectionPage, limit=WRITERS_SHOWN
    )
    schema = await _schema(visit)
    definition = _definition(schema)
    values = {
        "topic": topic,
        "records": sum(
            bounds.high_watermark - bounds.log_start_offset for bounds in topic.partitions
        ),
        "size_bytes": sum(partition.size_bytes for partition in topic.partitions),
        "partitions": shown,
        "first": first,
        "next": first + PARTITIONS_SHOWN if first + len(shown) < len(topic.partitions) else None,
        "settings": shown_settings(topic),
        "schema": schema,
        "schema_version": visit.query("schema"),
        "schema_text": definition[:SCHEMA_CHARACTERS_SHOWN],
        "is_schema_cut": len(definition) > SCHEMA_CHARACTERS_SHOWN,
        "writers": writers.connections,
        "has_more_writers": writers.next is not None,
        "producers": producers[:PRODUCERS_SHOWN],
        "more_producers": max(len(producers) - PRODUCERS_SHOWN, 0),
    }
    return Page("topic.html", values)


def shown_settings(topic: TopicDetail) -> list[ShownSetting]:
    """Return every setting of a topic with its value in force, the topic's own values first."""
    rows: dict[str, TopicSetting] = dict(TOPIC_SETTINGS)
    # Settings of single subscriptions.
    rows |= {name: row for name in topic.settings if (row := row_of(name)) is not None}
    settings = [
        ShownSetting(
            name=name,
            value=_value_text(topic.settings.get(name, topic.in_force.get(name, row.default))),
            effect=row.effect,
            is_changed=name in topic.settings,
        )
        for name, row in rows.items()
    ]
    return sorted(settings, key=lambda setting: not setting.is_changed)


def _value_text(value: object) -> str:
    """Return a value as the command line takes values."""
    if value is None or value == -1:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return str(getattr(value, "value", value))


async def _producers(visit: Visit, topic: TopicDetail) -> list[ListedProducer]:
    """Return the open producers of a topic; none if the user may not see them."""
    call = "partitioned-stats" if topic.partitioned else "stats"
    path = f"/admin/v2/persistent/{visit.topic}/{call}"
    try:
        return (await visit.api.get(path, Producers)).publishers
    except ApiError as error:
        if error.status in (401, 403):
            return []
        raise


async def _schema(visit: Visit) -> TopicSchema | None:
    """Return the newest schema of a topic, or the version that the address names; None if there is
    none. Raises ApiError, PageRefused.
    """
    path = f"/admin/v2/schemas/{visit.topic}/schema"
    if visit.query("schema"):
        path = f"{path}/{visit.number('schema', 0)}"
    return await visit.api.find(path, TopicSchema)


def _definition(schema: TopicSchema | None) -> str:
    """Return a schema's definition with line breaks if it is JSON."""
    if schema is None:
        return ""
    json = parsed(schema.data.encode())
    return schema.data if json is msgspec.UNSET else pretty(schema.data.encode())
