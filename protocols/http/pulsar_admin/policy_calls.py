"""The routes of policies: show, set and remove each policy of a namespace or a topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.rights import Action
from braidlog.broker.topics.settings import row_of
from braidlog.protocols.http import query
from braidlog.protocols.http.errors import NOT_ON_NON_PERSISTENT, RequestRefused
from braidlog.protocols.http.path_names import name_of, namespace_of, text_of
from braidlog.protocols.http.pulsar_admin.answers import json_answer
from braidlog.protocols.http.pulsar_admin.handlers import AdminHandlers
from braidlog.protocols.http.pulsar_admin.policies import APPLIED, Policy, Setting, Settings
from braidlog.protocols.http.pulsar_admin.policy_table import (
    BY_PATH,
    POLICIES,
    rate_of_subscription,
)
from braidlog.protocols.http.pulsar_admin.properties import TOPIC_CLUSTERS
from braidlog.protocols.http.pulsar_admin.write_content import (
    HINT,
    HINTED,
    NO_POLICY,
    OF_ONE_CLUSTER,
    OF_TOPIC_POLICY,
    Content,
    silent,
)
from braidlog.protocols.http.routes import Endpoint

if TYPE_CHECKING:
    from braidlog.protocols.http.requests import Handler

Changes = Mapping[str, Setting | None]


@dataclass(frozen=True, slots=True)
class PolicyLevel:
    """Namespaces or topics: the objects that have policies."""

    name: str
    above: str  # Decides where the level has no policy.
    path: str
    settings: Callable[[Request], Settings]
    is_stored: bool  # False for non-persistent topics.
    alter: Callable[[Request, Changes], Awaitable[int]]  # Returns a ticket.


class AdminPolicies(AdminHandlers):
    """Handlers of a broker's policies."""

    def calls(self, namespace: str, topic: str) -> Iterator[tuple[str, str, Endpoint]]:
        """Yield method, path and handler of each call; the paths are those of the two levels."""
        levels = (
            PolicyLevel(
                "namespace",
                "the broker's configuration",
                namespace,
                self._of_namespace,
                True,
                self._alter_namespace,
            ),
            PolicyLevel("topic", "its namespace", topic, self._of_topic, True, self._alter_topic),
        )
        yield from self._calls(levels)

    def calls_of_non_persistent(self, topic: str) -> Iterator[tuple[str, str, Endpoint]]:
        """Yield the calls of non-persistent topics, which have no policies of their own."""
        of_topic, alter = self._of_non_persistent, self._alter_non_persistent
        yield from self._calls([PolicyLevel("topic", "namespace", topic, of_topic, False, alter)])

    def _calls(self, levels: Iterable[PolicyLevel]) -> Iterator[tuple[str, str, Endpoint]]:
        for level in levels:
            for policy in filter(partial(_is_at, level), POLICIES):
                for path, methods in policy.calls(is_topic=level.name == "topic"):
                    for method in methods:
                        yield method, f"{level.path}/{path}", self._endpoint(method, level, policy)

    def calls_of_subscription(self, path: str) -> Iterator[tuple[str, str, Endpoint]]:
        """Yield the calls about the rate of delivery to a single subscription of a topic."""
        yield "GET", path, Endpoint(self._show_rate, Action.DESCRIBE)
        fields = BY_PATH["dispatchRate"].names
        yield "POST", path, silent(self._set_rate, Action.ALTER, Content(fields, OF_TOPIC_POLICY))
        yield "DELETE", path, silent(self._remove_rate, Action.ALTER, NO_POLICY)

    async def _show_rate(self, request: Request) -> Response:
        """Show the rate of delivery to a subscription; with `applied`, the rate in force."""
        policy, settings = _rate_in_path(request), self._of_topic(request)
        if policy.shown(settings) is None and query.truth(request, APPLIED):
            policy = BY_PATH["subscriptionDispatchRate"]
        shown = policy.shown(settings)
        if shown is None and query.truth(request, APPLIED):
            shown = policy.applied
        return Response(status_code=200) if shown is None else json_answer(shown)

    async def _set_rate(self, request: Request) -> Response:
        """Set the rate of delivery to a subscription, in place of that of all subscriptions."""
        changes = _rate_in_path(request).changes(await self._body(request), request)
        return await self._done_at(await self._alter_topic(request, changes))

    async def _remove_rate(self, request: Request) -> Response:
        """Leave the rate of delivery to a subscription to the topic."""
        changes = _rate_in_path(request).removal(request)
        return await self._done_at(await self._alter_topic(request, changes))

    def removal_of_all(self) -> Endpoint:
        """Return the call that removes all policies of a topic."""
        return silent(self._remove_all, Action.ALTER, HINTED)

    async def _remove_all(self, request: Request) -> Response:
        """Leave all policies of a topic to its namespace."""
        own = self._broker.topics.get(name_of(request)[0]).meta.settings
        rows = {name: row_of(name) for name in own}
        names = [name for name, row in rows.items() if row is not None and row.pulsar]
        changes = dict.fromkeys([*names, *({TOPIC_CLUSTERS} & own.keys())])
        return await self._done_at(await self._alter_topic(request, changes))

    def _endpoint(self, method: str, level: PolicyLevel, policy: Policy) -> Endpoint:
        if method == "GET":
            statuses = sorted({200, _absent_status(level, policy)})
            return Endpoint(self._show(level, policy), Action.DESCRIBE, statuses=statuses)
        handler = self._remove if method == "DELETE" else self._set
        content = _content(method, level, policy)
        return silent(handler(level, policy), policy.action, content)

    def _show(self, level: PolicyLevel, policy: Policy) -> Handler:
        async def show(request: Request) -> Response:
            shown = policy.shown(level.settings(request))
            is_topic = level.name == "topic"
            if shown is None and policy.in_force and is_topic and query.truth(request, APPLIED):
                shown = self._in_force(level, policy, request)
            if shown in (None, {}) and (not is_topic or query.truth(request, APPLIED)):
                default = policy.applied if is_topic else policy.unset
                shown = shown if default is None else default
            if shown is None:  # Apache answers with an empty body.
                shown = policy.topic_unset if is_topic else None
            if shown is None:
                return Response(status_code=_absent_status(level, policy))
            return json_answer(shown)

        more = "; with `applied`, the value in force" if level.name == "topic" else ""
        return _described(show, f"Show a {level.name}'s {policy.noun or policy.path}{more}.")

    def _in_force(self, level: PolicyLevel, policy: Policy, request: Request) -> object:
        if not level.is_stored or policy.in_force is None:
            return policy.of_non_persistent
        return policy.in_force(self._broker, self._broker.topics.get(name_of(request)[0]))

    def _set(self, level: PolicyLevel, policy: Policy) -> Handler:
        async def set_policy(request: Request) -> Response:
            if policy.check is not None:
                policy.check(self._broker)
            body = await self._body(request)
            if policy.topic_query and level.name == "topic":
                body = query.integer(request, policy.topic_query, -1)
            return await self._altered(level, request, policy.changes(body, request))

        form = f": {policy.form}" if policy.form else ""
        return _described(set_policy, f"Set a {level.name}'s {policy.noun or policy.path}{form}.")

    def _remove(self, level: PolicyLevel, policy: Policy) -> Handler:
        async def remove(request: Request) -> Response:
            return await self._altered(level, request, policy.removal(request))

        text = f"Leave a {level.name}'s {policy.noun or policy.path} to {level.above}."
        return _described(remove, text)

    async def _altered(self, level: PolicyLevel, request: Request, changes: Changes) -> Response:
        return await self._done_at(await level.alter(request, changes))

    def _of_namespace(self, request: Request) -> Settings:
        return self._broker.namespaces.get(*namespace_of(request)).settings

    def _of_topic(self, request: Request) -> Settings:
        topic = self._broker.topics.get(name_of(request)[0])
        return topic.settings if query.truth(request, APPLIED) else topic.meta.settings

    def _of_non_persistent(self, request: Request) -> Settings:
        name, index = name_of(request)
        if not self._broker.non_persistent.exists(name):
            self._broker.non_persistent.get(name, index, make=False)
        place = (name.tenant, name.namespace)
        return self._broker.topics.inherited(*place) if query.truth(request, APPLIED) else {}

    async def _alter_non_persistent(self, request: Request, changes: Changes) -> int:
        self._of_non_persistent(request)
        if any(value is not None for value in changes.values()):
            text = "a non-persistent topic has no policies of its own, set those of its namespace"
            path = request.scope["path"]
            raise RequestRefused(NOT_ON_NON_PERSISTENT, f"{request.method} {path}: {text}")
        return 0

    def _alter_namespace(self, request: Request, changes: Changes) -> Awaitable[int]:
        return self._broker.topics.alter_namespace(*namespace_of(request), changes)

    def _alter_topic(self, request: Request, changes: Changes) -> Awaitable[int]:
        return self._broker.topics.alter_settings(name_of(request)[0], changes)


def _content(method: str, level: PolicyLevel, policy: Policy) -> Content:
    """Return the content that a change of a policy understands."""
    query, is_topic = policy.query, level.name == "topic"
    if is_topic:
        query = (*query, HINT) if policy.path in OF_ONE_CLUSTER else (*query, *OF_TOPIC_POLICY)
    if method == "DELETE":
        return Content(query=query)
    if is_topic and policy.topic_query:
        return Content(query=(policy.topic_query, *query))
    return Content(policy.names, query)


def _rate_in_path(request: Request) -> Policy:
    """Return the policy of the subscription in the path. Raises RequestRefused."""
    return rate_of_subscription(text_of(request, "of_subscription"))


def _absent_status(level: PolicyLevel, policy: Policy) -> int:
    return policy.topic_absent_status if level.name == "topic" else policy.absent_status


def _is_at(level: PolicyLevel, policy: Policy) -> bool:
    return level.name in policy.levels


def _described(handler: Handler, text: str) -> Handler:
    """Give a handler the text that the API's description shows."""
    handler.__doc__ = text
    return handler
