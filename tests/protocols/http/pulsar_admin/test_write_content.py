"""Every call that changes something states the content that the call understands; all other content
is refused, above all the content that Apache Pulsar knows.
"""

import re
from pathlib import Path

import pytest

from braidlog.protocols.http.bodies import Bodies
from braidlog.protocols.http.options import RestOptions
from braidlog.protocols.http.pulsar_admin.paths import (
    ADMIN,
    NON_PERSISTENT,
    OTHERS,
    OTHERS_OF_NON_PERSISTENT,
    SPACE,
    SUBSCRIPTION,
    TOPIC,
)
from braidlog.protocols.http.pulsar_admin.table import admin_calls
from braidlog.protocols.http.pulsar_admin.write_content import WRITING, check_fields
from tests.protocols.http.test_access import filled

VECTORS = Path(__file__).parents[4] / "conformance" / "vectors" / "pulsar" / "admin-calls.tsv"
PART = re.compile(r"\{[^}]*\}")
# Bodies with names that the client chooses: each is stored.
MAPS = (
    ("PUT", f"{SPACE}/properties"),
    ("PUT", f"{TOPIC}/properties"),
    ("PUT", f"{SUBSCRIPTION}/properties"),
    ("PUT", TOPIC),
)
# Understood here, unknown to Apache's classes.
OWN_NAMES = {
    "isExcluded",  # The documents' name of `excluded`.
    "empty",  # Apache shows the field.
    "maxDelayInMillis",  # Go's name of `maxDeliveryDelayInMillis`.
    "deleteSchema",  # Java's client asks for it; Apache always deletes schemas.
}
BY_CLIENTS = {
    ("PUT", f"{TOPIC}/backlogSize"): {"batchIndex"},  # Of Java's id of a message in a batch.
    # As of the calls of persistent topics.
    ("PUT", f"{NON_PERSISTENT}/partitions"): {"partitions", "properties", "authoritative"},
    ("POST", f"{NON_PERSISTENT}/partitions"): {"partitions"},
    ("PUT", f"{TOPIC}/partitions"): {"authoritative"},
    ("POST", f"{TOPIC}/partitions"): {"partitions"},
}
# Every policy of a topic can be removed here.
WITHOUT_APACHE = {
    ("DELETE", f"{place}/schemaValidationEnforced"): {"authoritative"}
    for place in (TOPIC, NON_PERSISTENT)
}


def apache_names():
    """Return the names that Apache knows, by method and path: parameters, and fields."""
    names = {}
    for line in VECTORS.read_text().splitlines()[1:]:
        method, path, query, body = line.split("\t")
        known = names.setdefault((method, PART.sub("{}", f"{ADMIN}{path}")), (set(), set()))
        known[0].update(filter(None, query.split(",")))
        known[1].update(fields_of(body))
    return names


def fields_of(body):
    """Return the names of the fields of an object, without the fields of nested objects."""
    flat = body.partition("{")[2]
    while flat != (flat := re.sub(r"\{[^{}]*\}", "", flat)):
        pass
    return re.findall(r"(\w+):", flat)


APACHE = apache_names()


@pytest.fixture
def contents(broker):
    """Return the content of each call that changes something, by method and path."""
    bodies = Bodies.of(RestOptions(), broker.stopping).of_others
    refused = (*OTHERS, OTHERS_OF_NON_PERSISTENT)
    return {
        (method, path): endpoint.content
        for method, path, endpoint in admin_calls(broker, RestOptions(), bodies)
        if method in WRITING and path not in refused
    }


def apache_of(call):
    if call in WITHOUT_APACHE:
        return WITHOUT_APACHE[call], set()
    method, path = call
    return APACHE[method, PART.sub("{}", path)]


async def ask_about_objects(ask):
    """Create the objects that `filled` names."""
    await ask("PUT", filled(TOPIC), status=204)
    await ask("PUT", filled(SUBSCRIPTION), "earliest", 204)
    await ask("PUT", filled(NON_PERSISTENT), status=204)


async def test_calls_understand_names_that_apache_knows(contents):
    assert len(contents) > 100
    for call, content in contents.items():
        query, fields = apache_of(call)
        others = OWN_NAMES | BY_CLIENTS.get(call, set())
        assert set(content.query) - query <= others, call
        assert set(content.fields or ()) - fields <= others, call


async def test_other_parameters_are_refused(ask, contents):
    for call, content in contents.items():
        method, path = call
        known = content.query
        for name in {"unheard", *apache_of(call)[0]} - set(known):
            answer = await ask(method, f"{filled(path)}?{name}=5", status=501)
            expected = ", ".join(known) or "none"
            text = f"query parameter {name} has no meaning here, expected {expected}"
            assert answer.json == {"reason": text}, call


async def test_parameters_that_ask_for_nothing_are_accepted(ask):
    for value in ("false", "", "0"):
        await ask("PUT", f"{filled(TOPIC)}?unheard={value}", status=204)
        await ask("DELETE", f"{filled(TOPIC)}?unheard={value}", status=204)


async def test_other_fields_are_refused(ask, contents):
    await ask_about_objects(ask)
    for call, content in contents.items():
        method, path = call
        known = content.fields
        for name in {"unheard", *apache_of(call)[1]} - set(known or ()):
            answer = await ask(method, filled(path), {name: 5})
            if known is None:
                assert answer.status >= 400 or call in MAPS, (call, answer.body)
            else:
                reason = answer.json["reason"].split(",")[0]
                assert (answer.status, reason) == (501, f"field {name} has no meaning here"), call


async def test_a_body_of_another_kind_is_refused(ask, contents):
    await ask_about_objects(ask)
    for method, path in contents:
        answer = await ask(method, filled(path), ["unheard"])
        # A list of roles may have any names.
        is_roles = path == f"{SPACE}/permissions/subscription/{{of_subscription}}"
        assert answer.status >= 400 or is_roles, (method, path, answer.body)


def test_fields_without_a_value_are_accepted():
    check_fields({"a": None, "b": False, "c": 0, "d": "", "e": [], "f": {}, "known": 1}, ("known",))
