"""The broker that a check asks, and the calls that set policies, as `pulsar-admin` makes them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pulsar

ANSWER_S: Final = 30
FOLLOWS_S: Final = 30.0  # Until a broker of a cluster has followed a change.
# The limits that the broker's settings of a run have: a namespace of a check sets the others to
# "none".
FREE: Final[Mapping[str, object]] = {
    "maxProducersPerTopic": 0,
    "maxConsumersPerTopic": 0,
    "maxConsumersPerSubscription": 0,
    "maxSubscriptionsPerTopic": 0,
    "maxTopicsPerNamespace": 0,
    "maxUnackedMessagesPerConsumer": 0,
    "maxUnackedMessagesPerSubscription": 0,
    "publishRate": {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": -1},
    "dispatchRate": {"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": -1},
    "subscriptionDispatchRate": {
        "dispatchThrottlingRateInMsg": -1,
        "dispatchThrottlingRateInByte": -1,
    },
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": -1, "ratePeriodInSecond": 30},
}
SUBSCRIPTION: Final = "readers"  # Of all clients that read.
# A topic's path, where it differs from the namespace's.
TOPIC_PATHS: Final = {
    "maxProducersPerTopic": "maxProducers",
    "maxConsumersPerTopic": "maxConsumers",
    "maxUnackedMessagesPerConsumer": "maxUnackedMessagesOnConsumer",
    "maxUnackedMessagesPerSubscription": "maxUnackedMessagesOnSubscription",
}


class PolicyFailed(AssertionError):
    """A policy did not hold; the text says how."""


@dataclass(slots=True)
class Place:
    """The addresses of a broker's listeners. A broker of a cluster does not compact."""

    addresses: Mapping[str, str]
    compacts: bool = True

    @property
    def url(self) -> str:
        """Return the URL of the HTTP listener."""
        return f"http://{self.addresses['http']}"

    def client(self, patience_s: int = ANSWER_S) -> pulsar.Client:
        """Return a Pulsar client, which logs nothing; it repeats what may pass for so long."""
        return pulsar.Client(
            f"pulsar://{self.addresses['pulsar']}",
            operation_timeout_seconds=patience_s,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
        )

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Make a call of the admin API; return the status and the value of the answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = Request(f"{self.url}/admin/v2/{path}", data, headers, method=method)
        try:
            with urlopen(request, timeout=ANSWER_S) as answer:
                status, text = answer.status, answer.read()
        except HTTPError as error:
            status, text = error.code, error.read()
        return status, json.loads(text) if text else None

    def set(self, path: str, body: object) -> None:
        """Set a policy at the path of a namespace or topic. Raises PolicyFailed."""
        status, answer = self.call("POST", path, body)
        if status != 204:
            raise PolicyFailed(f"POST {path} {body}: {status} {answer}")

    def make_namespace(self, name: str, policies: Mapping[str, object]) -> None:
        """Create a namespace with these policies, unless it exists."""
        self.call("PUT", f"namespaces/{name}")
        for policy, body in policies.items():
            self.set(f"namespaces/{name}/{policy}", body)

    def make_topic(self, name: str) -> None:
        """Create a topic without partitions, unless the topic exists."""
        self.call("PUT", f"persistent/{name}")

    def await_topic(self, name: str) -> None:
        """Wait until the broker answers for the topic. Raises PolicyFailed."""
        deadline = time.monotonic() + FOLLOWS_S
        while self.call("GET", f"persistent/{name}/stats")[0] != 200:
            if time.monotonic() > deadline:
                raise PolicyFailed(f"{name} is not served")
            time.sleep(0.1)


def namespace_of(level: str, policy: str) -> str:
    """Return the namespace of a check."""
    return f"public/{level}-{policy.lower()}"


def set_up(place: Place, level: str, policy: str, body: object, topic: str) -> None:
    """Create the namespace and the topic of a check, and set the policy at its level; the broker's
    is in its settings.
    """
    space = namespace_of(level, policy)
    others = {name: free for name, free in FREE.items() if name != policy}
    if level == "topic" and policy in FREE:
        others[policy] = FREE[policy]
    place.make_namespace(space, others)
    place.make_topic(topic)
    if level == "namespace":
        place.set(f"namespaces/{space}/{policy}", body)
    elif level == "topic":
        place.set(f"persistent/{topic}/{TOPIC_PATHS.get(policy, policy)}", body)
    elif level == "subscription":
        place.set(f"persistent/{topic}/{policy}", FREE[policy])
        place.set(f"persistent/{topic}/{SUBSCRIPTION}/dispatchRate", body)
