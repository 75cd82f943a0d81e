"""Texts of Apache Pulsar for missing and existing objects, in place of the broker's own texts.

A tool prints the text, and scripts search for it. A handler with a special text raises
RequestRefused itself.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker import errors
from braidlog.protocols.http.errors import RequestRefused, wire_code
from braidlog.protocols.http.path_names import text_of

if TYPE_CHECKING:
    from braidlog.protocols.http.requests import Handler

NON_PERSISTENT: Final = ("/admin/v2/non-persistent/", "/lookup/v2/topic/non-persistent/")


def in_apache_words(handler: Handler) -> Handler:
    """Return the handler with Apache's texts for errors about objects of the path."""

    @wraps(handler)
    async def serve(request: Request) -> Response:
        try:
            return await handler(request)
        except errors.BrokerError as error:
            text = _text(error, request)
            if text is None:
                raise
            raise RequestRefused(wire_code(error), text) from error

    return serve


def _text(error: errors.BrokerError, request: Request) -> str | None:
    """Return Apache's text for the error; None if the broker's text stands."""
    of_topic = "name" in request.path_params
    match error:
        case errors.TopicNotFound() if of_topic:
            return f"Topic {full_name_in(request)} not found"
        case errors.PartitionNotFound() if of_topic:
            return "Topic partitions were not yet created"
        case errors.SubscriptionNotFound() if of_topic and "subscription" in request.path_params:
            name = text_of(request, "subscription")
            return f"Subscription {name} not found for topic {full_name_in(request)}"
        case errors.TopicExists() if of_topic:
            return "This topic already exists"
        case errors.NamespaceNotFound():
            return _no_namespace(request)
        case errors.NamespaceExists():
            return "Namespace already exists"
        case errors.TopicInUse() if not of_topic:
            return "Cannot delete non empty namespace"
    return None


def _no_namespace(request: Request) -> str:
    if "name" in request.path_params:
        return "Namespace not found"
    has_namespace = "namespace" in request.path_params
    return f"{'Namespace' if has_namespace else 'Tenant'} does not exist"


def full_name_in(request: Request) -> str:
    """Return the full name of the path's topic; of a partition, if the path names a partition."""
    is_stored = not request.scope["path"].startswith(NON_PERSISTENT)
    parts = (text_of(request, part) for part in ("tenant", "namespace", "name"))
    return f"{'' if is_stored else 'non-'}persistent://{'/'.join(parts)}"
