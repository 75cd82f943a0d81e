"""The areas of the HTTP API: the headings of `/docs`, the tags of `/openapi.json`.

Knows the beginnings of paths, no handler.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from braidlog.broker.topics.settings_table import TOPIC_SETTINGS

REFUSED: Final = "{rest}"  # Ends the paths whose every request is refused.


@dataclass(frozen=True, slots=True)
class Area:
    """Operations that belong together. `paths` matches the beginnings of their paths."""

    name: str
    about: str
    paths: re.Pattern[str]


def _area(name: str, about: str, *paths: str) -> Area:
    return Area(name, about, re.compile("|".join(paths)))


_TOPIC = r"/admin/v2/persistent/\{tenant\}/\{namespace\}/\{name\}"
_NAMESPACE = r"/admin/v2/namespaces/\{tenant\}/\{namespace\}"
_POLICY = f"/(?:{'|'.join(sorted({row.pulsar for row in TOPIC_SETTINGS.values() if row.pulsar}))})"

# In the order of the page.
AREAS: Final = (
    _area("Topics", "Create, change and delete topics of all protocols.", "/api/v1/topics"),
    _area(
        "Messages",
        "Store messages, and read a partition without a subscription (PIP-64).",
        "/topics/",
    ),
    _area(
        "Consumers",
        "A consumer of a subscription over HTTP, and the subscription's cursor.",
        r"/topics/.*/subscriptions?/",
        "/api/v1/http-consumers",
    ),
    _area("Groups", "Subscriptions of all protocols, and their positions.", "/api/v1/groups"),
    _area(
        "Stored log",
        "Batches as they are stored, and positions of readers: for Spark and other exports.",
        "/api/v1/(?:log|exports)",
        "/api/v1/groups/.*/positions",
    ),
    _area("Users and permissions", "Logins, tokens and rights.", "/api/v1/"),
    _area(
        "Health and metrics",
        "For load balancers and Prometheus.",
        "/(?:healthz|readyz|metrics)",
        "/api/v1/(?:connections|stats|history|brokers|audit|config)",
    ),
    _area("This description", "For programs and for people.", "/(?:openapi.json|docs)"),
    _area(
        "Pulsar admin: cluster",
        "Brokers, and the lookup of topics.",
        "/admin/",
        "/lookup/",
    ),
    _area(
        "Pulsar admin: tenants and namespaces",
        "Tenants, their namespaces, and the topics of a namespace.",
        "/admin/v2/(?:tenants|namespaces)",
    ),
    _area(
        "Pulsar admin: topics",
        "Topics as `pulsar-admin` and Pulsar's admin clients manage them.",
        "/admin/v2/persistent/",
    ),
    _area("Pulsar admin: subscriptions", "Subscriptions of a topic.", _TOPIC + "/subscription"),
    _area("Pulsar admin: schemas", "Schemas of a topic.", "/admin/v2/schemas/"),
    _area(
        "Pulsar admin: policies",
        "Settings of namespaces and topics.",
        _NAMESPACE + _POLICY,
        _TOPIC + _POLICY,
    ),
    _area(
        "Pulsar admin: permissions",
        "Actions of roles on namespaces and topics.",
        _NAMESPACE + "/permissions",
        _TOPIC + "/permissions",
    ),
    _area(
        "Pulsar admin: non-persistent topics",
        "Topics whose messages are not stored.",
        "/admin/v2/non-persistent/",
    ),
)


def area_of(path: str) -> Area:
    """Return the area that matches the longest beginning of a path. Raises ValueError for none."""
    matches = ((match.end(), area) for area in AREAS if (match := area.paths.match(path)))
    return max(matches, key=lambda pair: pair[0])[1]


def usual_spelling(path: str) -> str:
    """Return the path in the spelling that `/docs` shows; other spellings mean the same."""
    path = path.replace("/topics/persistent/", "/topics/")
    path = path.replace("/subscriptions/", "/subscription/")
    path = path.replace("/consumers/{consumer}", "/consumer/{consumer}")
    return path.removesuffix("/consumers").rstrip("/")
