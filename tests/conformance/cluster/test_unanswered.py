"""Changes whose answers are lost between real brokers: some are made here, none is forgotten."""

import re
import tempfile
from pathlib import Path

import pytest

from braidlog.protocols.http.pulsar_admin import absent
from braidlog.protocols.http.requests import READING
from braidlog.protocols.iggy import commands as iggy
from braidlog.protocols.iggy import messages as m
from braidlog.protocols.kafka import session as kafka
from braidlog.protocols.pulsar.machine import Type
from conformance.cluster import servers, unanswered
from conformance.cluster.unanswered_changes import CHANGES
from conformance.cluster.unanswered_kinds import ChangeOutcome, named
from tests.protocols.http.test_access import routes
from tests.protocols.iggy import test_lost_answers as iggy_samples
from tests.protocols.iggy.test_access import CODES
from tests.protocols.kafka import test_lost_answers as kafka_samples
from tests.protocols.pulsar import test_lost_answers as pulsar_samples

SHORT = {
    "Iggy CREATE_PARTITIONS": ChangeOutcome.DONE,
    "Iggy SEND_MESSAGES": ChangeOutcome.UNKNOWN,
    "Kafka CreateTopics": ChangeOutcome.DONE,
    "Pulsar PRODUCER": ChangeOutcome.DONE,
    "HTTP PATCH topic": ChangeOutcome.DONE,
    "HTTP set positions": ChangeOutcome.UNKNOWN,
}
# The members of a group end with their connection, which a lost answer ends; a password is not
# shown. tests/protocols/iggy/test_lost_answers.py checks these commands.
IGGY_ELSEWHERE = {
    *(m.CommandCode.JOIN_GROUP, m.CommandCode.LEAVE_GROUP, m.CommandCode.CHANGE_PASSWORD),
}
SPACE, OF_TOPIC = "/admin/v2/namespaces/{}/{}", "/admin/v2/persistent/{}/{}/{}"
NAMESPACE_JOBS = ("clearBacklog", "clearBacklog/{}", "unsubscribe/{}")


def _template(path):
    """Return a path without the names of its parts."""
    return re.sub(r"\{[^}]*\}", "{}", path)


HTTP_ELSEWHERE = {
    # Only with access control: tests/protocols/http/test_lost_answers.py checks these routes.
    *(("POST", f"{SPACE}/permissions/{{}}"), ("DELETE", f"{SPACE}/permissions/{{}}")),
    *(("POST", f"{OF_TOPIC}/permissions/{{}}"), ("DELETE", f"{OF_TOPIC}/permissions/{{}}")),
    # Refused in a cluster, where no log is compacted.
    *(("PUT", f"{SPACE}/compactionThreshold"), ("DELETE", f"{SPACE}/compactionThreshold")),
    *(("POST", f"{OF_TOPIC}/compactionThreshold"), ("DELETE", f"{OF_TOPIC}/compactionThreshold")),
    ("PUT", f"{OF_TOPIC}/compaction"),
    # Refused where another broker owns a topic of the namespace.
    *(("POST", f"{SPACE}/{end}") for end in NAMESPACE_JOBS),
    *(("POST", f"{SPACE}/{{}}/{end}") for end in NAMESPACE_JOBS),
    # A broker's memory alone: the last runs of export jobs.
    ("POST", "/api/v1/exports"),
    # Change nothing that is stored: clients connect again, a schema is only compared, there is
    # no replication, all partitions are there, nothing of the newest segment is trimmed.
    *(("PUT", f"{place}/unload") for place in (SPACE, f"{SPACE}/{{}}", OF_TOPIC)),
    *(("POST", f"{place}/replication") for place in (SPACE, OF_TOPIC)),
    ("DELETE", f"{OF_TOPIC}/replication"),
    ("DELETE", "/admin/v2/clusters/{}/failureDomains/{}"),
    *(("POST", f"{OF_TOPIC}/{end}") for end in ("createMissedPartitions", "trim")),
    ("POST", f"{OF_TOPIC}/subscription/{{}}/analyzeBacklog"),
    ("PUT", f"{OF_TOPIC}/backlogSize"),
    ("POST", "/admin/v2/schemas/{}/{}/{}/version"),
    ("POST", "/admin/v2/schemas/{}/{}/{}/compatibility"),
    # Remove what nothing has.
    *(("DELETE", f"{SPACE}/{end}") for end in absent.REMOVED_FROM_NAMESPACES),
    *(("DELETE", f"{OF_TOPIC}/{end}") for end in map(_template, absent.REMOVED_FROM_TOPICS)),
    # Accept the value that holds already.
    *(("POST", f"{SPACE}/{end}") for end in absent.SETTABLE_ON_NAMESPACES),
    *(("POST", f"{OF_TOPIC}/{end}") for end in map(_template, absent.SETTABLE_ON_TOPICS)),
}
# Refuse each path of Pulsar that has no route.
UNSERVED = {"/admin/{}", "/admin/v2/{}", "/lookup/{}"}


@pytest.mark.slow
@pytest.mark.clients
def test_clients_receive_the_outcome_despite_a_cut_link_to_the_owner():
    if (reason := servers.missing()) is not None:
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="braidlog-unanswered-") as folder:
        outcomes, faults = unanswered.run(Path(folder), list(SHORT))
    assert (outcomes, faults) == (SHORT, [])


def sent_by(protocol):
    return {name.partition(" ")[2] for name in CHANGES if name.startswith(f"{protocol} ")}


def test_every_change_of_iggy_is_made():
    quiet = iggy_samples.CHANGE_NOTHING | iggy_samples.IN_LATER_DIALECTS
    changing = {m.CommandCode(CODES[kind]) for kind in iggy.COMMANDS if kind not in quiet}
    assert sent_by("Iggy") == {code.name for code in changing - IGGY_ELSEWHERE}


def test_every_change_of_kafka_is_made():
    """All that another broker than the owner accepts."""
    refused = {*kafka_samples.at_the_owner_alone(b"")} | kafka_samples.CHANGE_NOTHING
    changing = {kind.__name__.removesuffix("Request") for kind in kafka.COMMANDS.keys() - refused}
    assert sent_by("Kafka") == changing


def test_every_change_of_pulsar_is_made():
    assert sent_by("Pulsar") == {Type.Name(kind) for kind in pulsar_samples.MAKING}


def templates(paths):
    """Return each path as a template, and without the aliases of HTTP's routes."""
    for method, path in paths:
        path = _template(path).replace("/topics/persistent/", "/topics/")
        path = path.replace("/subscriptions/", "/subscription/")
        path = re.sub(r"/consumer(/|$)", r"/consumers\1", path)
        yield method, path.removesuffix("/consumers") if method == "POST" else path


async def test_every_change_of_http_is_made(broker):
    """Each route that changes something has a request here, or a reason above."""
    changing = {
        (method, path)
        for method, path in templates(routes(broker))
        if method not in READING and "non-persistent" not in path and path not in UNSERVED
    }
    requests = [change.make.args for name, change in CHANGES.items() if name.startswith("HTTP ")]
    sent = set()
    for method, path, _ in requests:
        path = named(path, "topic").partition("?")[0]
        fitting = [change for change in changing if change[0] == method and fits(change[1], path)]
        assert fitting, f"no route for {method} {path}"
        sent.add(max(fitting, key=lambda change: -change[1].count("{}")))
    assert changing - sent == HTTP_ELSEWHERE


def fits(template, path):
    """Return whether a route has that path."""
    pattern = re.escape(template).replace(r"\{\}", "[^/]+")
    return re.fullmatch(pattern, path.removesuffix("/consumers")) is not None
