"""DescribeClientQuotas and AlterClientQuotas: the limits of users, which are in the broker's
configuration file.

Kafka knows a limit of each direction; here the limit is for both together, and shown as both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.kafka.admin import check_cluster, refusal, refusals_in
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code, CodeRefused
from braidlog.protocols.kafka.wire import alter_client_quotas as altering
from braidlog.protocols.kafka.wire.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from braidlog.broker.config.settings import PrincipalLimits

USER, CLIENT, ADDRESS = b"user", b"client-id", b"ip"
EXACT, DEFAULT, ANY = range(3)  # kinds of a match
RATES: Final = (b"producer_byte_rate", b"consumer_byte_rate")
USERS_PER_TURN: Final = 500
IN_FILE: Final = "limits are in the broker's configuration file: access.limits, access.user_limits"


async def describe_client_quotas(
    context: KafkaContext, request: DescribeClientQuotasRequest
) -> KafkaAnswer:
    """Describe the limits of users that fit a filter; None stands for all other users."""
    reply = DescribeClientQuotasResponse(error_message=None, entries=None)
    with refusals_in(context, reply):
        check_cluster(context)
        components, entries = _checked(request.components), []
        async for name, limits in in_turns(_limits(context), USERS_PER_TURN):
            if limits.bytes_per_s is not None and _fits(name, components, strict=request.strict):
                values = [ValueData(key=key, value=float(limits.bytes_per_s)) for key in RATES]
                entity = [EntityData(entity_type=USER, entity_name=name)]
                entries.append(EntryData(entity=entity, values=values))
        reply.entries = entries
    return KafkaAnswer(reply)


def _checked(components: Sequence[ComponentData]) -> dict[bytes, ComponentData]:
    """Return the parts of a filter by the type of entity. Raises CodeRefused."""
    by_type: dict[bytes, ComponentData] = {}
    for component in components:
        kind = component.entity_type or b""
        if kind in by_type:
            raise CodeRefused(Code.INVALID_REQUEST, "the filter names a type of entity twice")
        if not kind:
            raise CodeRefused(Code.INVALID_REQUEST, "the filter has an empty type of entity")
        if component.match_type not in (EXACT, DEFAULT, ANY):
            raise CodeRefused(Code.INVALID_REQUEST, "the filter has an unknown kind of match")
        if (component.match is not None) != (component.match_type == EXACT):
            raise CodeRefused(Code.INVALID_REQUEST, "a name belongs to an exact match alone")
        if kind not in (USER, CLIENT, ADDRESS):
            raise CodeRefused(Code.UNSUPPORTED_VERSION, "limits are for users")
        by_type[kind] = component
    if ADDRESS in by_type and len(by_type) > 1:
        raise CodeRefused(Code.INVALID_REQUEST, "an address has no user and no client id")
    return by_type


def _limits(context: KafkaContext) -> Iterator[tuple[bytes | None, PrincipalLimits]]:
    access = context.broker.config.access
    yield None, access.limits
    for name, limits in access.user_limits.items():
        yield name.encode(), limits


def _fits(name: bytes | None, components: dict[bytes, ComponentData], *, strict: bool) -> bool:
    """Return True if a user fits a filter; a strict filter has no types beside those it names."""
    if components.keys() - {USER}:
        return False  # A limit of a user has no client id and no address.
    wanted = components.get(USER)
    if wanted is None:
        return not strict
    return wanted.match_type == ANY or name == wanted.match


def alter_client_quotas(
    context: KafkaContext, request: altering.AlterClientQuotasRequest
) -> KafkaAnswer:
    """Refuse each change."""
    try:
        check_cluster(context)
        raise CodeRefused(Code.INVALID_REQUEST, IN_FILE)
    except CodeRefused as error:
        code, text = refusal(context, error)
    entries = [
        altering.AlterClientQuotasResponseEntryData(
            error_code=code, error_message=text, entity=entry.entity
        )
        for entry in request.entries
    ]
    return KafkaAnswer(altering.AlterClientQuotasResponse(entries=entries))
