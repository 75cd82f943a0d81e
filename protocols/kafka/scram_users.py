"""DescribeUserScramCredentials and AlterUserScramCredentials over the broker's users."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

from braidlog.broker.access.passwords import SCRAM_HASHES, scram_key_of
from braidlog.broker.access.users import ScramKey, UserMeta
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.kafka.admin import check_cluster, refusals_in, user_refusal
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code, CodeRefused
from braidlog.protocols.kafka.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from braidlog.protocols.kafka.wire.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}  # `ScramMechanism` of apache/kafka
NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16_384
SALT_BYTES_MAX: Final = 1024
USERS_PER_TURN: Final = 500
Change = ScramCredentialDeletion | ScramCredentialUpsertion


async def describe_scram_users(
    context: KafkaContext, request: DescribeUserScramCredentialsRequest
) -> KafkaAnswer:
    """Describe the keys of the named users, or of all users with keys."""
    reply = DescribeUserScramCredentialsResponse(error_message=None)
    with refusals_in(context, reply):
        check_cluster(context)
        reply.results = await _described_all(context, request)
    return KafkaAnswer(reply)


async def _described_all(
    context: KafkaContext, request: DescribeUserScramCredentialsRequest
) -> list[DescribeUserScramCredentialsResult]:
    if request.users:
        names = Counter(user.name or b"" for user in request.users)
    else:
        names = Counter(user.name.encode() for user in context.broker.users.all() if user.scram)
    results = []
    async for name, count in in_turns(names.items(), USERS_PER_TURN):
        results.append(_described(context, name, count))
    return results


def _described(
    context: KafkaContext, name: bytes, count: int
) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name, error_message=None)
    with refusals_in(context, result):
        if count > 1:
            raise CodeRefused(Code.DUPLICATE_RESOURCE, "the request names the user twice")
        text = user_name(name)
        user = None if text is None else context.broker.users.find(text)
        if user is None or not user.scram:
            raise CodeRefused(Code.RESOURCE_NOT_FOUND, "the user has no keys for SCRAM")
        result.credential_infos = [
            CredentialInfo(mechanism=NUMBERS[key.mechanism], iterations=key.iterations)
            for key in user.scram
        ]
    return result


async def alter_scram_users(
    context: KafkaContext, request: AlterUserScramCredentialsRequest
) -> KafkaAnswer:
    """Make all changes of a user, or none of them; another user's are separate."""
    by_user: dict[bytes, list[Change]] = {}
    changes: list[Change] = [*request.deletions, *request.upsertions]
    for change in changes:
        by_user.setdefault(change.name or b"", []).append(change)
    results, ticket = [], 0
    for name, of_user in by_user.items():
        result = AlterUserScramCredentialsResult(user=name, error_message=None)
        with refusals_in(context, result, user_refusal):
            check_cluster(context)
            ticket = max(ticket, await _alter(context, name, of_user))
        results.append(result)
    if ticket:
        await context.broker.published(ticket)
    return KafkaAnswer(AlterUserScramCredentialsResponse(results=results))


def user_name(name: bytes) -> str | None:
    """Return the name of a user as text; None for a name that no user can have."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() and text else None


async def _alter(context: KafkaContext, name: bytes, changes: Sequence[Change]) -> int:
    """Change the keys of a user in a single change of the catalogue; return the ticket. Raises
    BrokerError, CodeRefused.
    """
    for change in changes:
        if change.mechanism not in MECHANISMS:
            raise CodeRefused(Code.UNSUPPORTED_SASL_MECHANISM, "an unknown mechanism")
    if len({change.mechanism for change in changes}) < len(changes):
        raise CodeRefused(Code.DUPLICATE_RESOURCE, "the request names a mechanism twice")
    users, text = context.broker.users, user_name(name)
    if text is None:
        raise CodeRefused(Code.UNACCEPTABLE_CREDENTIAL, "a user has a name of printable text")
    user = users.find(text)
    keys = [_key(change) for change in changes if isinstance(change, ScramCredentialUpsertion)]
    gone = {MECHANISMS[c.mechanism] for c in changes if isinstance(c, ScramCredentialDeletion)}
    if gone:
        _check_keys(user, gone)
    ticket = await users.change_scram_keys(text, keys, gone)
    connection = context.connection
    context.broker.audit.changed(connection.principal, connection.at, "scram_keys_changed", text)
    return ticket


def _check_keys(user: UserMeta | None, mechanisms: set[str]) -> None:
    """Check that a user has keys for these mechanisms. Raises CodeRefused."""
    present = set() if user is None else {key.mechanism for key in user.scram}
    if missing := mechanisms - present:
        raise CodeRefused(Code.RESOURCE_NOT_FOUND, f"the user has no key for {min(missing)}")


def _key(wanted: ScramCredentialUpsertion) -> ScramKey:
    """Return the key of a request. Raises CodeRefused."""
    mechanism = MECHANISMS[wanted.mechanism]
    if not ITERATIONS_MIN <= wanted.iterations <= ITERATIONS_MAX:
        text = f"between {ITERATIONS_MIN} and {ITERATIONS_MAX} iterations"
        raise CodeRefused(Code.UNACCEPTABLE_CREDENTIAL, text)
    salt, salted = wanted.salt or b"", wanted.salted_password or b""
    size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
    if not 0 < len(salt) <= SALT_BYTES_MAX or len(salted) != size:
        text = f"a salt of 1 to {SALT_BYTES_MAX} bytes, and a salted password of {size} bytes"
        raise CodeRefused(Code.UNACCEPTABLE_CREDENTIAL, text)
    return scram_key_of(mechanism, salt, wanted.iterations, salted)
