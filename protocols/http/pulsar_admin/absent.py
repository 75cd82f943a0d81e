"""Settings of Apache Pulsar that no namespace or topic has here: replication, offload, filters.

Tools read them before they change anything else. A read tells in Apache's words that nothing is
set, and a removal has nothing to do. Setting them is not served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.rights import Action
from braidlog.protocols.http import query
from braidlog.protocols.http.errors import NOT_SUPPORTED, RequestRefused
from braidlog.protocols.http.path_names import namespace_of
from braidlog.protocols.http.pulsar_admin.answers import done, json_answer
from braidlog.protocols.http.pulsar_admin.handlers import AdminHandlers
from braidlog.protocols.http.pulsar_admin.names import full_names, topic_of
from braidlog.protocols.http.pulsar_admin.policies import APPLIED
from braidlog.protocols.http.pulsar_admin.write_content import (
    HINT,
    OF_ONE_CLUSTER,
    OF_TOPIC_POLICY,
    WHOLE,
    WHOLE_HINTED,
    Content,
    silent,
)
from braidlog.protocols.http.routes import Endpoint

if TYPE_CHECKING:
    from braidlog.protocols.http.requests import Handler

NOTHING: Final = object()  # An empty answer, 200.
OFFLOAD_STATUS: Final = {
    "status": "NOT_RUN",
    "lastError": "",
    "firstUnoffloadedMessage": {
        "ledgerId": -1,
        "entryId": -1,
        "partitionIndex": -1,
        "batchIndex": -1,
        "batchSize": 0,
    },
}
# Ends of paths with the answers where nothing is set. Some removals have a path of their own.
OF_NAMESPACES: Final = {
    "antiAffinity": NOTHING,
    "dispatcherPauseOnAckStatePersistent": False,
    "entryFilters": NOTHING,
    "offloadDeletionLagMs": NOTHING,
    "offloadPolicies": NOTHING,
    "offloadThreshold": -1,
    "offloadThresholdInSeconds": -1,
    "persistence/bookieAffinity": NOTHING,
    "replicatorDispatchRate": NOTHING,
    "resourcegroup": NOTHING,
}
REMOVED_FROM_NAMESPACES: Final = (
    "antiAffinity",
    "dispatcherPauseOnAckStatePersistent",
    "entryFilters",
    "offloadDeletionLagMs",
    "persistence/bookieAffinity",
    "removeOffloadPolicies",
    "replicatorDispatchRate",
    "resourcegroup",
)
OF_TOPICS: Final = {
    "dispatcherPauseOnAckStatePersistent": False,
    "entryFilters": NOTHING,
    "offload": OFFLOAD_STATUS,
    "offloadPolicies": NOTHING,
    "replicatorDispatchRate": NOTHING,
    "shadowTopics": NOTHING,
}
NO_RATE: Final = {
    "dispatchThrottlingRateInMsg": 0,
    "dispatchThrottlingRateInByte": 0,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
# Answers with `applied`, if they differ.
APPLIED_TO_TOPICS: Final = {
    "entryFilters": {"entryFilterNames": ""},
    "replicatorDispatchRate": NO_RATE,
}
REMOVED_FROM_TOPICS: Final = (
    "dispatcherPauseOnAckStatePersistent",
    "entryFilters",
    "offloadPolicies",
    "replicatorDispatchRate",
    "shadowTopics",
)
REPLICATED = "subscription/{subscription}/replicatedSubscriptionStatus"
# Ends of paths with the only body that is accepted, as it changes nothing.
SETTABLE_ON_NAMESPACES: Final = {"migration": False}
SETTABLE_ON_TOPICS: Final = {REPLICATED: False}


class AbsentFeatures(AdminHandlers):
    """Handlers of settings that nothing has."""

    def calls(self, namespace: str, topic: str) -> Iterator[tuple[str, str, Endpoint]]:
        """Yield method, path and handler of each call; the paths are those of the levels."""
        levels = (
            (namespace, "namespace", self._check_namespace, OF_NAMESPACES, REMOVED_FROM_NAMESPACES),
            (topic, "topic", self._check_topic, OF_TOPICS, REMOVED_FROM_TOPICS),
        )
        settable: dict[str, Mapping[str, object]] = {
            namespace: SETTABLE_ON_NAMESPACES,
            topic: SETTABLE_ON_TOPICS,
        }
        for path, level, check, shown, removed in levels:
            is_topic = level == "topic"
            for end, answer in shown.items():
                applied = APPLIED_TO_TOPICS.get(end, answer) if is_topic else answer
                handler = _shows(check, answer, applied, f"Show that a {level} has no {end}.")
                yield "GET", f"{path}/{end}", Endpoint(handler, Action.DESCRIBE)
            for end in removed:
                handler = _removes(check, f"Answer that a {level} has no {end}.")
                query = (HINT,) if end in OF_ONE_CLUSTER else OF_TOPIC_POLICY
                content = Content(query=query if is_topic else ())
                yield "DELETE", f"{path}/{end}", silent(handler, Action.ALTER, content)
            for end, value in settable[path].items():
                text = f"Accept {value}, the only value of a {level}'s {end.rpartition('/')[2]}."
                handler = self._accepts(check, value, text)
                content = WHOLE_HINTED if is_topic else WHOLE
                yield "POST", f"{path}/{end}", silent(handler, Action.ALTER, content)
        yield "GET", f"{topic}/{REPLICATED}", Endpoint(self.replicated, Action.DESCRIBE)

    def _accepts(self, check: Callable[[Request], None], value: object, text: str) -> Handler:
        async def accept(request: Request) -> Response:
            check(request)
            body = await self._body(request)
            if body != value or type(body) is not type(value):
                path = request.scope["path"]
                raise RequestRefused(
                    NOT_SUPPORTED, f"POST {path} is not served here, except with {value}"
                )
            return done()

        accept.__doc__ = text
        return accept

    async def replicated(self, request: Request) -> Response:
        """Show that a subscription is not replicated, for each partition."""
        topic, _ = topic_of(self._broker, request)
        name = request.path_params["subscription"].encode()
        self._broker.subscriptions.get(topic, name)
        return json_answer(dict.fromkeys(full_names([topic]), False))

    def _check_namespace(self, request: Request) -> None:
        self._broker.namespaces.get(*namespace_of(request))

    def _check_topic(self, request: Request) -> None:
        topic_of(self._broker, request)


def _shows(check: Callable[[Request], None], answer: object, applied: object, text: str) -> Handler:
    async def show(request: Request) -> Response:
        check(request)
        shown = applied if query.truth(request, APPLIED) else answer
        return Response(status_code=200) if shown is NOTHING else json_answer(shown)

    show.__doc__ = text
    return show


def _removes(check: Callable[[Request], None], text: str) -> Handler:
    async def remove(request: Request) -> Response:
        check(request)
        return done()

    remove.__doc__ = text
    return remove
