"""Content of requests that change something: the fields of the body and the query parameters that a
call understands. All other content would be dropped, and is refused with 501.

Apache's JSON library drops unknown fields, and Apache's broker unknown parameters. The tests
compare the content of each call with Apache's, recorded in
`conformance/vectors/pulsar/admin-calls.tsv`. Knows no path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.rights import Action
from braidlog.protocols.http.errors import NOT_SUPPORTED, RequestRefused
from braidlog.protocols.http.pulsar_admin.answers import READ_BODY, read_any
from braidlog.protocols.http.pulsar_admin.cluster_fields import PEERS, SWITCHES, TEXTS
from braidlog.protocols.http.routes import Endpoint
from braidlog.protocols.transport.messages import WHOLE_BODY

if TYPE_CHECKING:
    from braidlog.protocols.http.bodies import BodyReader
    from braidlog.protocols.http.requests import Handler

WRITING: Final = ("POST", "PUT", "DELETE")
NAMES_SHOWN: Final = 5
NAME_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class Content:
    """The content that a handler understands.

    `fields` are the names in the body's object; None if the handler itself checks the whole body.
    Without names the handler takes no body. `query` are the query parameters.
    """

    fields: Sequence[str] | None = ()
    query: Sequence[str] = ()


# Apache's hint for the broker that receives a redirected request: without effect on the outcome.
HINT: Final = "authoritative"
# A policy of the topic in every cluster; with a single cluster, a plain policy of the topic.
EVERYWHERE: Final = "isGlobal"
OF_TOPIC_POLICY: Final = (HINT, EVERYWHERE)
# Apache knows no `isGlobal` of these policies.
OF_ONE_CLUSTER: Final = ("schemaCompatibilityStrategy", "schemaValidationEnforced", "shadowTopics")
NOTHING: Final = Content()
NO_POLICY: Final = Content(query=OF_TOPIC_POLICY)  # Of a call that removes a policy of a topic.
HINTED: Final = Content(query=(HINT,))
FORCED: Final = Content(query=(HINT, "force"))
# A topic's schemas are always deleted with the topic. Java's client asks for that.
DELETED_TOPIC: Final = Content(query=(HINT, "force", "deleteSchema"))
# A single cluster: each topic is local.
NEW_PARTITIONS: Final = Content(("partitions", "properties"), (HINT, "createLocalTopicOnly"))
# Nothing is checked that `force` would skip.
MORE_PARTITIONS: Final = Content(("partitions",), (HINT, "updateLocalTopicOnly", "force"))
# The handler checks the whole body: a list, a map of names that the client chooses, a value.
WHOLE: Final = Content(None)
WHOLE_HINTED: Final = Content(None, (HINT,))
CLUSTER_DATA: Final = Content((*TEXTS, *SWITCHES, PEERS))
TENANT_INFO: Final = Content(("adminRoles", "allowedClusters"))
SCHEMA: Final = Content(("type", "schema", "properties"), (HINT,))
# The path names the partition, so `partitionIndex` repeats it, as in Apache.
MESSAGE_ID: Final = ("ledgerId", "entryId", "partitionIndex", "batchIndex")
PLACE: Final = (*MESSAGE_ID, "excluded", "isExcluded")
POSITION: Final = Content(PLACE, (HINT,))
NEW_SUBSCRIPTION: Final = Content((*PLACE, "properties"), (HINT, "replicated"))


@dataclass(frozen=True, slots=True)
class AdminEndpoint(Endpoint):
    """A handler of Pulsar's admin API with the content that the handler understands."""

    content: Content = NOTHING


def silent(handler: Handler, action: Action, content: Content = NOTHING) -> AdminEndpoint:
    """Return the endpoint of a call with an empty answer; `content` is that of the request."""
    return AdminEndpoint(handler, action, statuses=(204,), content=content)


def refuse_the_rest(handler: Handler, content: Content, bodies: BodyReader) -> Handler:
    """Return the handler for requests without other content."""

    @wraps(handler)
    async def serve(request: Request) -> Response:
        stated = [name for name, value in request.query_params.multi_items() if _says(value)]
        _check("query parameter", stated, content.query)
        body = None if _is_empty(request) else await read_any(bodies, request)
        if content.fields is not None:
            check_fields(body, content.fields)
        request.scope[READ_BODY] = body
        return await handler(request)

    return serve


def check_fields(body: object, known: Sequence[str], place: str = "") -> None:
    """Refuse an object with other fields, as far as their values say anything; without known
    fields, every body. `place` begins the text of the error. Raises RequestRefused.
    """
    if isinstance(body, dict):
        _check(f"{place}field", [name for name, value in body.items() if value], known)
    elif body and not known:
        raise RequestRefused(NOT_SUPPORTED, f"{place}the body has no meaning here, expected none")


def _check(noun: str, stated: Iterable[str], known: Sequence[str]) -> None:
    others = [name[:NAME_CHARACTERS] for name in stated if name not in known]
    if others:
        text = f"{noun} {', '.join(others[:NAMES_SHOWN])} has no meaning here"
        raise RequestRefused(NOT_SUPPORTED, f"{text}, expected {', '.join(known) or 'none'}")


def _says(value: str) -> bool:
    """Return False for a value that asks for nothing; Go's client removes a TTL with such a 0."""
    return value.lower() not in ("", "false", "0")


def _is_empty(request: Request) -> bool:
    """Return True for a request without a body, whose media type has no meaning."""
    declared = request.headers.get("content-length")
    return declared == "0" or request.scope.get(WHOLE_BODY) == b""
