"""HTTP's changes for `unanswered`: one of each route that changes something.

Aliases of a route (`subscriptions`, `/topics/persistent`) have no change of their own.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import httpx

from braidlog.protocols.http.pulsar_admin.policies import Policy
from braidlog.protocols.http.pulsar_admin.policy_table import POLICIES
from conformance.cluster.unanswered_kinds import (
    ANSWER_S,
    Change,
    ChangeOutcome,
    HttpRequest,
    Near,
    named,
)
from conformance.policy_samples import policy_body

PARTITIONS: Final = 2  # Of each topic before its change.


def by_http(method: str, path: str, body: Any, near: Near, topic: str) -> ChangeOutcome:
    """Send a request. 502 leaves the outcome unknown."""
    host, port = near["http"]
    url = f"http://{host}:{port}{named(path, topic)}"
    body_words = {} if body is None else {"json": _named(body, topic)}
    answer = httpx.request(method, url, timeout=ANSWER_S, trust_env=False, **body_words)
    if answer.is_success:
        return ChangeOutcome.DONE
    return ChangeOutcome.UNKNOWN if answer.status_code == 502 else ChangeOutcome.NOT_DONE


def _named(body: Any, topic: str) -> Any:
    if isinstance(body, dict):
        return {name: _named(value, topic) for name, value in body.items()}
    return named(body, topic) if isinstance(body, str) else body


_API, _OF_TOPIC, _ADMIN = "/api/v1/topics/TOPIC", "/topics/TOPIC", "/admin/v2/persistent/TOPIC"
_PART, _GROUP = f"{_ADMIN}-partition-0", "/api/v1/groups/TOPIC/group"
_SUBSCRIPTION = f"{_ADMIN}/subscription/group"
_SCHEMA = "/admin/v2/schemas/TOPIC/schema"
SPACE, _TENANT, USER = (
    "/admin/v2/namespaces/public/NAME",
    "/admin/v2/tenants/NAME",
    "/api/v1/users/NAME",
)
IN_SPACE = "/api/v1/topics/public/NAME/NAME"
_MESSAGES = {"messages": [{"value": "x", "partition": 0}]}
_NOBODY = {"adminRoles": [], "allowedClusters": ["standalone"]}
_BOSS = {**_NOBODY, "adminRoles": ["boss"]}
_STRING = {"type": "STRING", "schema": "", "properties": {}}
_GRANT = {"subject": "NAME", "action": "describe", "resource": "cluster"}
GRANTED = "/api/v1/permissions?subject=NAME"
_CLUSTER = "/admin/v2/clusters/NAME"
MAKE_CLUSTER: HttpRequest = ("PUT", _CLUSTER, {})
_DESCRIBED = {"serviceUrl": "http://broker:8080"}
_WITH_PASSWORD = {"password": "secret123"}
MAKE_USER: HttpRequest = ("PUT", USER, _WITH_PASSWORD)
MAKE_SPACE: HttpRequest = ("PUT", SPACE, None)


def _change(method: str, path: str, body: Any = None, **more: Any) -> Change:
    return Change(partial(by_http, method, path, body), **more)


def _properties() -> Iterator[tuple[str, Change]]:
    """Yield changes of the properties of a namespace and of a topic."""
    for level, place in (("namespace", SPACE), ("topic", _ADMIN)):
        prepares = [MAKE_SPACE] if level == "namespace" else []
        path = f"{place}/properties"
        to_set: HttpRequest = ("PUT", path, {"team": "blue"})
        yield f"HTTP PUT {level} properties", _change(*to_set, prepares=prepares, looks=[path])
        end = "?key=team" if level == "topic" else ""  # Apache removes a topic's one by one.
        removed = _change("DELETE", f"{path}{end}", prepares=[*prepares, to_set], looks=[path])
        yield f"HTTP DELETE {level} properties", removed
    path, prepares = f"{SPACE}/property/team", [MAKE_SPACE]
    change = _change("PUT", f"{path}/blue", prepares=prepares, looks=[f"{SPACE}/properties"])
    yield "HTTP PUT namespace property", change
    prepares = [MAKE_SPACE, ("PUT", f"{path}/blue", None)]
    removed = _change("DELETE", path, prepares=prepares, looks=[f"{SPACE}/properties"])
    yield "HTTP DELETE namespace property", removed


def _of_subscriptions() -> Iterator[tuple[str, Change]]:
    """Yield changes of a subscription's rate of delivery, and of its roles."""
    rate = f"{_ADMIN}/audit/dispatchRate"
    to_set: HttpRequest = ("POST", rate, {"dispatchThrottlingRateInMsg": 7})
    yield "HTTP POST subscription rate", _change(*to_set, looks=[rate])
    yield "HTTP DELETE subscription rate", _change("DELETE", rate, prepares=[to_set], looks=[rate])
    roles = f"{SPACE}/permissions/subscription"
    to_list: HttpRequest = ("POST", f"{roles}/audit", ["anna", "bob"])
    yield "HTTP POST subscription roles", _change(*to_list, prepares=[MAKE_SPACE], looks=[roles])
    revoked = f"{SPACE}/permissions/audit/anna"
    change = _change("DELETE", revoked, prepares=[MAKE_SPACE, to_list], looks=[roles])
    yield "HTTP DELETE subscription role", change


def _policies() -> Iterator[tuple[str, Change]]:
    """Yield a change of each policy that sets the policy, and a change that removes it."""
    for policy in POLICIES:
        if policy.check is not None:
            continue  # Refused in a cluster.
        for level, place in (("namespace", SPACE), ("topic", _ADMIN)):
            if level in policy.levels:
                yield from _of_policy(policy, level, place)


def _of_policy(policy: Policy, level: str, place: str) -> Iterator[tuple[str, Change]]:
    is_topic = level == "topic"
    *_, (end, methods) = policy.calls(is_topic=is_topic)
    path, look = f"{place}/{end}", f"{place}/{policy.shown_at or end}"
    method = next(method for method in methods if method not in ("GET", "DELETE"))
    body = policy_body(policy)
    to_set: HttpRequest = (method, path, body)
    if is_topic and policy.topic_query:
        to_set = (method, f"{path}?{policy.topic_query}={body}", None)
    prepares = [] if is_topic else [MAKE_SPACE]
    yield f"HTTP {method} {level} {end}", _change(*to_set, prepares=prepares, looks=[look])
    if "DELETE" in methods:
        removed = _change("DELETE", path, prepares=[*prepares, to_set], looks=[look])
        yield f"HTTP DELETE {level} {end}", removed


HTTP_CHANGES: Final[Mapping[str, Change]] = {
    "HTTP PUT topic": _change("PUT", _API, {"partitions": PARTITIONS}, creates=True),
    "HTTP PATCH topic": _change("PATCH", _API, {"partitions": PARTITIONS + 1}),
    "HTTP DELETE topic": _change("DELETE", _API),
    "HTTP append": _change("POST", _OF_TOPIC, _MESSAGES, over_topic=True, appends=True),
    "HTTP append to a partition": _change(
        "POST",
        f"{_OF_TOPIC}/partitions/0",
        {"messages": [{"value": "x"}]},
        over_topic=True,
        appends=True,
    ),
    "HTTP import": _change("POST", f"{_API}/messages", _MESSAGES, over_topic=True, appends=True),
    "HTTP set positions": _change(
        "PUT", f"{_GROUP}/positions", {"positions": {"0": 2}}, over_topic=True
    ),
    "HTTP end a group": _change("DELETE", _GROUP, over_topic=True),
    "HTTP subscribe": _change(
        "POST", f"{_OF_TOPIC}/subscription/new/consumers", {"id": "a", "name": "a"}, over_topic=True
    ),
    "HTTP end a consumer": _change(
        "DELETE",
        f"{_OF_TOPIC}/subscription/new/consumers/a",
        over_topic=True,
        looks=["/api/v1/groups/TOPIC/new"],
        prepares=[("POST", f"{_OF_TOPIC}/subscription/new/consumers", {"id": "a", "name": "a"})],
    ),
    "HTTP seek": _change(
        "POST",
        f"{_OF_TOPIC}/subscription/group/cursor",
        {"type": "Seek", "position": "latest"},
        over_topic=True,
    ),
    "HTTP admin subscribe": _change("PUT", f"{_ADMIN}/subscription/new", "latest", over_topic=True),
    "HTTP admin unsubscribe": _change("DELETE", _SUBSCRIPTION, over_topic=True),
    "HTTP admin skip_all": _change("POST", f"{_SUBSCRIPTION}/skip_all", over_topic=True),
    "HTTP admin skip": _change(
        "POST", f"{_PART}/subscription/group/skip/1", over_topic=True, is_step=True
    ),
    "HTTP admin expireMessages": _change(
        "POST", f"{_SUBSCRIPTION}/expireMessages/0", over_topic=True
    ),
    "HTTP admin expireMessages of all": _change(
        "POST", f"{_ADMIN}/all_subscription/expireMessages/0", over_topic=True
    ),
    "HTTP admin expireMessages to a place": _change(
        "POST",
        f"{_PART}/subscription/group/expireMessages",
        {"ledgerId": 1 << 40, "entryId": 0, "partitionIndex": 0},
        over_topic=True,
    ),
    "HTTP admin resetcursor to a time": _change(
        "POST", f"{_SUBSCRIPTION}/resetcursor/0", over_topic=True
    ),
    "HTTP admin resetcursor": _change(
        "POST",
        f"{_PART}/subscription/group/resetcursor",
        {"ledgerId": 1 << 40, "entryId": 0, "partitionIndex": 0},
        over_topic=True,
    ),
    "HTTP DELETE topic policies": _change(
        "DELETE",
        f"{_ADMIN}/policies",
        over_topic=True,
        prepares=[("POST", f"{_ADMIN}/maxProducers", 3)],
        looks=[f"{_ADMIN}/maxProducers"],
    ),
    "HTTP PUT subscription properties": _change(
        "PUT",
        f"{_SUBSCRIPTION}/properties",
        {"team": "blue"},
        over_topic=True,
        looks=[f"{_SUBSCRIPTION}/properties"],
    ),
    "HTTP admin truncate": _change("DELETE", f"{_ADMIN}/truncate", over_topic=True),
    "HTTP admin terminate": _change("POST", f"{_ADMIN}/terminate/partitions"),
    "HTTP admin make": _change("PUT", f"{_ADMIN}/partitions", PARTITIONS, creates=True),
    "HTTP admin grow": _change("POST", f"{_ADMIN}/partitions", PARTITIONS + 1),
    "HTTP admin delete": _change("DELETE", f"{_ADMIN}/partitions"),
    "HTTP admin make unpartitioned": _change("PUT", _ADMIN, creates=True),
    "HTTP admin delete unpartitioned": _change(
        "DELETE", _ADMIN, creates=True, prepares=[("PUT", _ADMIN, None)]
    ),
    "HTTP admin terminate unpartitioned": _change(
        "POST", f"{_ADMIN}/terminate", creates=True, prepares=[("PUT", _ADMIN, None)]
    ),
    "HTTP add a schema": _change("POST", _SCHEMA, _STRING, over_topic=True, looks=[_SCHEMA]),
    "HTTP delete schemas": _change(
        "DELETE", _SCHEMA, prepares=[("POST", _SCHEMA, _STRING)], over_topic=True, looks=[_SCHEMA]
    ),
    "HTTP PUT tenant": _change("PUT", _TENANT, _BOSS, looks=[_TENANT]),
    "HTTP POST tenant": _change(
        "POST",
        _TENANT,
        _BOSS,
        prepares=[("PUT", _TENANT, _NOBODY)],
        looks=[_TENANT],
    ),
    "HTTP DELETE tenant": _change(
        "DELETE", _TENANT, prepares=[("PUT", _TENANT, _NOBODY)], looks=[_TENANT]
    ),
    "HTTP PUT cluster": _change("PUT", _CLUSTER, _DESCRIBED, looks=[_CLUSTER]),
    "HTTP POST cluster": _change(
        "POST", _CLUSTER, _DESCRIBED, prepares=[MAKE_CLUSTER], looks=[_CLUSTER]
    ),
    "HTTP POST peers": _change(
        "POST",
        f"{_CLUSTER}/peers",
        ["standalone"],
        prepares=[MAKE_CLUSTER],
        looks=[f"{_CLUSTER}/peers"],
    ),
    "HTTP POST migrate": _change(
        "POST",
        f"{_CLUSTER}/migrate?migrated=true",
        _DESCRIBED,
        prepares=[MAKE_CLUSTER],
        looks=[f"{_CLUSTER}/migrate"],
    ),
    "HTTP DELETE cluster": _change("DELETE", _CLUSTER, prepares=[MAKE_CLUSTER], looks=[_CLUSTER]),
    "HTTP POST allowed clusters": _change(
        "POST",
        f"{SPACE}/allowedClusters",
        ["standalone"],
        prepares=[MAKE_SPACE],
        looks=[f"{SPACE}/allowedClusters"],
    ),
    "HTTP PUT namespace": _change("PUT", SPACE, looks=[SPACE]),
    "HTTP DELETE namespace": _change("DELETE", SPACE, prepares=[MAKE_SPACE], looks=[SPACE]),
    "HTTP PUT user": _change("PUT", USER, _WITH_PASSWORD, looks=[USER]),
    "HTTP PATCH user": _change(
        "PATCH", USER, {"roles": ["boss"]}, prepares=[MAKE_USER], looks=[USER]
    ),
    "HTTP DELETE user": _change("DELETE", USER, prepares=[MAKE_USER], looks=[USER]),
    "HTTP PUT token": _change("PUT", f"{USER}/tokens/ci", {}, prepares=[MAKE_USER], looks=[USER]),
    "HTTP DELETE token": _change(
        "DELETE",
        f"{USER}/tokens/ci",
        prepares=[MAKE_USER, ("PUT", f"{USER}/tokens/ci", {})],
        looks=[USER],
    ),
    "HTTP POST permission": _change(
        "POST", "/api/v1/permissions", _GRANT, prepares=[MAKE_USER], looks=[GRANTED]
    ),
    "HTTP DELETE permission": _change(
        "DELETE",
        f"{GRANTED}&action=describe&resource=cluster",
        prepares=[MAKE_USER, ("POST", "/api/v1/permissions", _GRANT)],
        looks=[GRANTED],
    ),
    **dict(_policies()),
    **dict(_properties()),
    **dict(_of_subscriptions()),
}
