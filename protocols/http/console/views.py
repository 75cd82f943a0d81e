"""The paths of the console and the functions that answer them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio
from starlette.responses import Response

from braidlog.protocols.http.console import (
    audit_page,
    broker_pages,
    explain_page,
    group_pages,
    message_pages,
    overview_page,
    produce_page,
    sign_in,
    topic_changes,
    topic_pages,
)
from braidlog.protocols.http.console.growth import Growth
from braidlog.protocols.http.console.inside import ApiError
from braidlog.protocols.http.console.tailing import Tails
from braidlog.protocols.http.console.visits import ROOT, Page, Visit

PageFunction = Callable[[Visit], Awaitable[Page | Response]]

NAVIGATION = (
    ("Overview", f"{ROOT}/overview"),
    ("Topics", f"{ROOT}/topics"),
    ("Groups", f"{ROOT}/groups"),
    ("Broker", f"{ROOT}/broker"),
    ("Access", f"{ROOT}/access"),
    ("Audit", f"{ROOT}/audit"),
)
TOPIC = "topics/{tenant}/{namespace}/{topic}"
GROUP = "groups/{tenant}/{namespace}/{topic}/{group}"


@dataclass(frozen=True, slots=True)
class View:
    """The functions of a path: `get` shows, `post` changes. Read-only mode refuses a change unless
    `is_harmless`.
    """

    get: PageFunction | None = None
    post: PageFunction | None = None
    is_harmless: bool = False


def make_views(
    clock_s: Callable[[], float], stopping: trio.Event, now_us: Callable[[], int]
) -> dict[str, View]:
    """Return the view of each path, without the path of the console."""
    growth = Growth(clock_s)
    groups = group_pages.GroupPages(growth)
    topics = topic_pages.TopicPages(growth)
    tails = Tails(stopping)
    return {
        "": View(_first_page(topics)),
        "overview": View(overview_page.show_overview),
        "audit": View(audit_page.show_audit),
        "sign-in": View(sign_in.show, sign_in.sign_in, is_harmless=True),
        "sign-out": View(post=sign_in.sign_out, is_harmless=True),
        "topics": View(topics.show_topics, topic_changes.create),
        TOPIC: View(topic_pages.show_topic),
        f"{TOPIC}/messages": View(message_pages.show_messages),
        f"{TOPIC}/messages/{{partition}}/{{offset}}": View(message_pages.show_message),
        f"{TOPIC}/download": View(message_pages.download),
        f"{TOPIC}/tail": View(tails.show),
        f"{TOPIC}/tail/events": View(tails.stream),
        f"{TOPIC}/produce": View(produce_page.show, produce_page.produce),
        f"{TOPIC}/explain": View(explain_page.ExplainPages(now_us).show),
        f"{TOPIC}/copy": View(post=produce_page.copy),
        f"{TOPIC}/change": View(topic_changes.show, topic_changes.alter),
        f"{TOPIC}/purge": View(post=topic_changes.purge),
        f"{TOPIC}/delete": View(post=topic_changes.delete),
        "broker": View(broker_pages.show_broker),
        "consumers": View(broker_pages.show_consumers, broker_pages.end_consumer),
        "exports": View(broker_pages.show_exports),
        "about": View(broker_pages.show_about),
        "access": View(broker_pages.show_access),
        "access/users": View(post=broker_pages.change_user),
        "access/tokens": View(post=broker_pages.change_token),
        "access/permissions": View(post=broker_pages.change_permission),
        "groups": View(groups.show_groups),
        GROUP: View(groups.show_group),
        f"{GROUP}/reset": View(group_pages.show_reset, group_pages.reset),
        f"{GROUP}/delete": View(post=group_pages.delete),
    }


def _first_page(topics: topic_pages.TopicPages) -> PageFunction:
    async def first_page(visit: Visit) -> Page:
        """The overview; the topics for a user who may not see the broker's totals."""
        try:
            return await overview_page.show_overview(visit)
        except ApiError as error:
            if error.status != 403:
                raise
            return await topics.show_topics(visit)

    return first_page
