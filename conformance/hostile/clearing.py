"""Deletes an attack's leftovers, as an operator would.

Otherwise a long attack would be slow because of its topics, records and users, not because of its
frames.
"""

import json
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from braidlog.broker.limits import TOPIC_PARTITIONS_MAX
from conformance.clients.raw.kafka import KafkaWire
from conformance.clients.raw.zookeeper import ZooKeeper, ZooKeeperError
from conformance.hostile.rows import TOPIC
from conformance.server import RunningBroker

KEPT = "public/default/healthy-"  # The judged clients' topics.
GROUP_KEPT = "/consumers/healthy"  # Their group's nodes: to delete these ends its positions.
USERS_KEPT = ("admin", "iggy")
GONE = 404
# Of nodes that show the broker, of the tree's own nodes, and of nodes that went meanwhile.
KEPT_CODES = (-6, -8, -101, -102, -111)


@dataclass(slots=True)
class Cleared:
    """The number of deletions per kind."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str) -> None:
        """Count a deletion."""
        self.counts[kind] = self.counts.get(kind, 0) + 1


def prepare(broker: RunningBroker) -> None:
    """Create the topic and group of most frames."""
    with KafkaWire(broker.address("kafka")) as wire:
        wire.create(TOPIC)


def fill_memory(broker: RunningBroker) -> None:
    """Create and delete a topic with as many partitions as a topic may have.

    CPython keeps the memory of so many objects, and uses it again (docs/limits.md). A mutated
    number of partitions would do the same at any frame, and look like a leak.
    """
    with KafkaWire(broker.address("kafka")) as wire:
        wire.create_topic(TOPIC, TOPIC_PARTITIONS_MAX)
    _ask(broker, "DELETE", f"/api/v1/topics/public/default/{TOPIC}")


def clear(broker: RunningBroker) -> Cleared:
    """Delete all topics, namespaces, clusters and users except the judged clients'."""
    cleared = Cleared()
    after: str | None = ""
    while after is not None:
        page = _ask(broker, "GET", f"/api/v1/topics?limit=1000&after={urllib.parse.quote(after)}")
        for topic in page["topics"]:
            if not topic["name"].startswith(KEPT):
                _delete(broker, "topics", f"/api/v1/topics/{_quoted(topic['name'])}", cleared)
        after = page["next"]
    for tenant in _ask(broker, "GET", "/admin/v2/tenants"):
        for name in _ask(broker, "GET", f"/admin/v2/namespaces/{_quoted(tenant)}"):
            if name != "public/default":
                _delete(broker, "namespaces", f"/admin/v2/namespaces/{_quoted(name)}", cleared)
    for name in _ask(broker, "GET", "/admin/v2/clusters"):
        if name != "standalone":
            _delete(broker, "clusters", f"/admin/v2/clusters/{_quoted(name)}", cleared)
    for user in _ask(broker, "GET", "/api/v1/users")["users"]:
        if user["name"] not in USERS_KEPT:
            path = f"/api/v1/users/{urllib.parse.quote(user['name'], safe='')}"
            _delete(broker, "users", path, cleared)
    if "zookeeper" in broker.addresses:
        _delete_nodes(broker, cleared)
    return cleared


def _delete_nodes(broker: RunningBroker, cleared: Cleared) -> None:
    """Delete all stored nodes that a client may delete, children first."""
    client = ZooKeeper()
    client.connect(broker.address("zookeeper"))
    paths = ["/"]
    for path in paths:  # Grows meanwhile.
        with suppress(ZooKeeperError):  # An ephemeral node went.
            names, _ = client.children(path)
            paths += [f"{path.rstrip('/')}/{name}" for name in names]
    for path in reversed(paths[1:]):
        if path.startswith(GROUP_KEPT):
            continue
        try:
            client.delete(path)
        except ZooKeeperError as error:
            if error.code not in KEPT_CODES:
                raise
        else:
            cleared.add("nodes")
    client.end()


def _quoted(name: str) -> str:
    return "/".join(urllib.parse.quote(part, safe="") for part in name.split("/"))


def _delete(broker: RunningBroker, kind: str, path: str, cleared: Cleared) -> None:
    try:
        _ask(broker, "DELETE", path)
    except urllib.error.HTTPError as error:
        if error.code != GONE:  # Another client of the attack was quicker.
            raise
    cleared.add(kind)


def _ask(broker: RunningBroker, method: str, path: str) -> Any:
    request = urllib.request.Request(f"{broker.url}{path}", method=method)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read() or b"null")
