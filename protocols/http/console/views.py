"""The paths of the console and the functions that answer them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio
from starlette.responses import Response

from braidlog.protocols.http.console import (
    broker_pages,
    group_pages,
    message_pages,
    produce_page,
    sign_in,
    topic_changes,
    topic_pages,
)
from braidlog.protocols.http.console.growth import Growth
from braidlog.protocols.http.console.tailing import Tails
from braidlog.protocols.http.console.visits import ROOT, Page, Visit

PageFunction = Callable[[Visit], Awaitable[Page | Response]]

NAVIGATION = (
    ("Topics", f"{ROOT}/topics"),
    ("Groups", f"{ROOT}/groups"),
    ("Broker", f"{ROOT}/broker"),
    ("Access", f"{ROOT}/access"),
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


def make_views(clock_s: Callable[[], float], stopping: trio.Event) -> dict[str, View]:
    """Return the view of each path, without the path of the console."""
    groups = group_pages.GroupPages(Growth(clock_s))
    tails = Tails(stopping)
    return {
        "": View(topic_pages.show_topics),
        "sign-in": View(sign_in.show, sign_in.sign_in, is_harmless=True),
        "sign-out": View(post=sign_in.sign_out, is_harmless=True),
        "topics": View(topic_pages.show_topics, topic_changes.create),
        TOPIC: View(topic_pages.show_topic),
        f"{TOPIC}/messages": View(message_pages.show_messages),
        f"{TOPIC}/messages/{{partition}}/{{offset}}": View(message_pages.show_message),
        f"{TOPIC}/download": View(message_pages.download),
        f"{TOPIC}/tail": View(tails.show),
        f"{TOPIC}/tail/events": View(tails.stream),
        f"{TOPIC}/produce": View(produce_page.show, produce_page.produce),
        f"{TOPIC}/copy": View(post=produce_page.copy),
        f"{TOPIC}/change": View(topic_changes.show, topic_changes.alter),
        f"{TOPIC}/purge": View(post=topic_changes.purge),
        f"{TOPIC}/delete": View(post=topic_changes.delete),
        "broker": View(broker_pages.show_broker),
        "access": View(broker_pages.show_access),
        "access/users": View(post=broker_pages.change_user),
        "access/tokens": View(post=broker_pages.change_token),
        "access/permissions": View(post=broker_pages.change_permission),
        "groups": View(groups.show_groups),
        GROUP: View(groups.show_group),
        f"{GROUP}/reset": View(group_pages.show_reset, group_pages.reset),
        f"{GROUP}/delete": View(post=group_pages.delete),
    }
