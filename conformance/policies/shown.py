"""Every policy of a topic in the console's and the command line's settings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final
from urllib.request import urlopen

from starlette.requests import Request

from braidlog.protocols.http.pulsar_admin.policies import Policy
from braidlog.protocols.http.pulsar_admin.policy_table import POLICIES
from conformance.policies.place import ANSWER_S, Place, PolicyFailed
from conformance.policy_samples import policy_body

TOPIC: Final = "public/shown/all"
# The sample would delete the topic during the run.
BODIES: Final = {
    "inactiveTopicPolicies": {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 1_000_000,
        "deleteWhileInactive": True,
    }
}


def shown_policies(place: Place) -> list[Policy]:
    """Return the policies that the broker can have."""
    return [row for row in POLICIES if place.compacts or row.path != "compactionThreshold"]


def prepare(place: Place) -> None:
    """Set every policy of a topic, and of its namespace."""
    place.make_namespace("public/shown", {})
    place.make_topic(TOPIC)
    for policy in shown_policies(place):
        body = BODIES.get(policy.path) or policy_body(policy)
        paths = {"namespace": "namespaces/public/shown", "topic": f"persistent/{TOPIC}"}
        for level in policy.levels:
            is_topic = level == "topic"
            end, methods = policy.calls(is_topic=is_topic)[-1]
            method = next(method for method in methods if method in ("POST", "PUT"))
            path = f"{paths[level]}/{end}"
            if is_topic and policy.topic_query:
                status, answer = place.call(method, f"{path}?{policy.topic_query}={body}")
            else:
                status, answer = place.call(method, path, body)
            if status != 204:
                raise PolicyFailed(f"{method} {path} {body}: {status} {answer}")


def expected(place: Place) -> dict[str, Any]:
    """Return the value of each setting that the policies of a topic have set."""
    values: dict[str, Any] = {}
    for policy in shown_policies(place):
        body = BODIES.get(policy.path) or policy_body(policy)
        query = f"{policy.topic_query}={body}" if policy.topic_query else ""
        request = Request({"type": "http", "query_string": query.encode(), "headers": []})
        values |= policy.changes(body, request)
    return values


def faults(place: Place) -> Iterator[str]:
    """Yield the settings that the console's page or the command line do not show."""
    with urlopen(f"{place.url}/ui/topics/{TOPIC}", timeout=ANSWER_S) as answer:
        page = answer.read().decode()
    command = [sys.executable, "-m", "braidlog.broker.cli.main", "topics", "show", TOPIC]
    done = subprocess.run(
        [*command, "--url", place.url, "--output", "json"], capture_output=True, text=True
    )
    if done.returncode:
        yield f"the command line: {done.stderr[:500]}"
        return
    topic = json.loads(done.stdout)
    for name, value in expected(place).items():
        if name not in page:
            yield f"the console does not show {name}"
        seen = topic["settings"].get(name, topic["in_force"].get(name))
        if seen != value:
            yield f"the command line shows {name} as {seen!r}, not {value!r}"
