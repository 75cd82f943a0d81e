"""DescribeAcls, CreateAcls and DeleteAcls over the broker's permissions.

Without access control they are refused as by a broker of Kafka without an authorizer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from braidlog.broker.errors import BrokerError, UserNotFound
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.kafka.acl_bindings import Binding, bindings_of, grant_of
from braidlog.protocols.kafka.admin import (
    Result,
    check_cluster,
    refusal,
    refusals_in,
    user_refusal,
)
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code, CodeRefused
from braidlog.protocols.kafka.wire.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from braidlog.protocols.kafka.wire.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from braidlog.protocols.kafka.wire.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from braidlog.broker.access.rules import Grant

GRANTS_PER_TURN: Final = 500  # Some 10 us each.
NO_AUTHORIZER: Final = "access control is off: access.required is false"
UNKNOWN_VALUE: Final = "a filter names a kind of value that is not known"
KNOWN: Final = (range(1, 8), range(1, 5), range(1, 16), range(1, 4))  # Of Kafka 4.3's enums.
# A description by a value that Kafka does not know is empty; 0 stands for no value.
DESCRIBED: Final = (frozenset(range(-128, 128)) - {0},) * len(KNOWN)


async def describe_acls(context: KafkaContext, request: DescribeAclsRequest) -> KafkaAnswer:
    """Describe the ACLs that fit a filter."""
    reply = DescribeAclsResponse(error_message=None)
    with refusals_in(context, reply):
        _check(context)
        wanted = _filter(request, DESCRIBED)
        by_resource: dict[tuple[int, str | None, int], list[AclDescription]] = {}
        async for _, binding in _bindings(context, wanted):
            key = binding.resource, binding.name, binding.pattern
            by_resource.setdefault(key, []).append(
                AclDescription(
                    principal=_sent(binding.principal),
                    host=_sent(binding.host),
                    operation=binding.operation,
                    permission_type=binding.permission,
                )
            )
        reply.resources = [
            DescribeAclsResource(
                resource_type=kind, resource_name=_sent(name), pattern_type=form, acls=acls
            )
            for (kind, name, form), acls in by_resource.items()
        ]
    return KafkaAnswer(reply)


async def create_acls(context: KafkaContext, request: CreateAclsRequest) -> KafkaAnswer:
    """Grant the permissions of the ACLs."""
    results, refused, ticket = [], _refused(context), 0
    for creation in request.creations:
        code, text = refused
        result = AclCreationResult(error_code=code, error_message=text)
        if not code:
            with refusals_in(context, result, user_refusal):
                ticket = max(ticket, await _grant(context, creation))
        results.append(result)
    if ticket:
        await context.broker.published(ticket)
    return KafkaAnswer(CreateAclsResponse(results=results))


async def _grant(context: KafkaContext, creation: AclCreation) -> int:
    """Grant a permission; return the ticket. Raises BrokerError, CodeRefused."""
    try:
        binding = Binding(
            creation.resource_type,
            _text(creation.resource_name),
            creation.resource_pattern_type,
            _text(creation.principal),
            _text(creation.host),
            creation.operation,
            creation.permission_type,
        )
        grant = grant_of(binding, "/".join(context.namespace))
    except ValueError as error:
        raise CodeRefused(Code.INVALID_REQUEST, str(error)) from error
    ticket = await context.broker.permissions.grant(grant)
    _note(context, "permission_granted", grant)
    return ticket


async def delete_acls(context: KafkaContext, request: DeleteAclsRequest) -> KafkaAnswer:
    """Revoke the permissions with an ACL that fits a filter; other ACLs of these permissions go,
    too. An ACL that fits several filters is in the result of each.
    """
    results, fitting, refused, ticket = [], [], _refused(context), 0
    for wanted in request.filters:
        pairs: list[tuple[Grant, Binding]] = []
        code, text = refused
        result = DeleteAclsFilterResult(error_code=code, error_message=text)
        if not code:
            with refusals_in(context, result):
                pairs = [pair async for pair in _bindings(context, _filter(wanted, KNOWN))]
        result.matching_acls = _matching(pairs)
        results.append(result)
        fitting.append(pairs)
    for result, pairs in zip(results, fitting, strict=True):
        try:
            ticket = max(ticket, await _revoke(context, pairs))
        except BrokerError as error:
            result.error_code, result.error_message = user_refusal(context, error)
            result.matching_acls = []
    if ticket:
        await context.broker.published(ticket)
    return KafkaAnswer(DeleteAclsResponse(filter_results=results))


async def _revoke(context: KafkaContext, pairs: Sequence[tuple[Grant, Binding]]) -> int:
    """Revoke permissions; return the ticket, 0 if none is left. Raises BrokerError."""
    ticket = 0
    for grant in {grant: None for grant, _ in pairs}:
        with suppress(UserNotFound):  # Another filter, or another client, has revoked it.
            ticket = await context.broker.permissions.revoke(grant)
            _note(context, "permission_revoked", grant)
    return ticket


def _matching(pairs: Sequence[tuple[Grant, Binding]]) -> list[DeleteAclsMatchingAcl]:
    return [
        DeleteAclsMatchingAcl(
            error_message=None,
            resource_type=binding.resource,
            resource_name=_sent(binding.name),
            pattern_type=binding.pattern,
            principal=_sent(binding.principal),
            host=_sent(binding.host),
            operation=binding.operation,
            permission_type=binding.permission,
        )
        for _, binding in pairs
    ]


async def _bindings(context: KafkaContext, wanted: Binding) -> AsyncIterator[tuple[Grant, Binding]]:
    """Yield the ACLs of the listener's namespace that fit a filter, each with its permission."""
    namespace = "/".join(context.namespace)
    async for grant in in_turns(context.broker.permissions.list(), GRANTS_PER_TURN):
        for binding in bindings_of(grant, namespace):
            if wanted.matches(binding):
                yield grant, binding


def _filter(
    wanted: DescribeAclsRequest | DeleteAclsFilter, known: Sequence[Container[int]]
) -> Binding:
    """Return the filter of a request. Raises CodeRefused for a value that is not in `known`, by
    kind of value.
    """
    kinds = (
        wanted.resource_type_filter,
        wanted.pattern_type_filter,
        wanted.operation,
        wanted.permission_type,
    )
    if not all(kind in values for kind, values in zip(kinds, known, strict=True)):
        raise CodeRefused(Code.INVALID_REQUEST, UNKNOWN_VALUE)
    return Binding(
        wanted.resource_type_filter,
        _shown(wanted.resource_name_filter),
        wanted.pattern_type_filter,
        _shown(wanted.principal_filter),
        _shown(wanted.host_filter),
        wanted.operation,
        wanted.permission_type,
    )


def _check(context: KafkaContext) -> None:
    """Check that there is access control, and that the client may change it. Raises
    CodeRefused.
    """
    check_cluster(context)
    if context.broker.access.allows_all:
        raise CodeRefused(Code.SECURITY_DISABLED, NO_AUTHORIZER)


def _refused(context: KafkaContext) -> Result:
    """Return the error of each part of a request."""
    try:
        _check(context)
    except CodeRefused as error:
        return refusal(context, error)
    return Code.NONE, None


def _note(context: KafkaContext, action: str, grant: Grant) -> None:
    on = f"{grant.subject} {grant.action} {grant.resource}"
    connection = context.connection
    context.broker.audit.changed(connection.principal, connection.at, action, on)


def _text(name: bytes | None) -> str | None:
    """Return a text of a request. Raises CodeRefused for bytes that are no UTF-8."""
    try:
        return None if name is None else name.decode()
    except UnicodeDecodeError as error:
        raise CodeRefused(Code.INVALID_REQUEST, "a name is not UTF-8") from error


def _shown(name: bytes | None) -> str | None:
    """Return a text of a filter; a filter with bytes that are no UTF-8 fits nothing, as in Kafka,
    which reads them so, too.
    """
    return None if name is None else name.decode(errors="replace")


def _sent(text: str | None) -> bytes:
    return (text or "").encode()
