"""Users for SCRAM, made by Kafka's tools, log in by SCRAM alone."""

import hashlib

import pytest

from braidlog.broker.access.passwords import scram_key_of
from braidlog.broker.broker import Broker
from braidlog.broker.errors import NotAuthenticated
from braidlog.protocols.kafka.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from braidlog.protocols.kafka.wire.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.protocols.kafka.frames import RawKafka

SALT, PASSWORD, HOST = b"salt of the user", b"secret", "127.0.0.1"
HASHES = {1: "sha256", 2: "sha512"}
NOT_FOUND, DUPLICATE, UNACCEPTABLE, UNKNOWN_MECHANISM = 91, 92, 93, 33


def upsertion(name: bytes, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    salted = hashlib.pbkdf2_hmac(HASHES.get(mechanism, "sha1"), PASSWORD, SALT, iterations)
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=salted
    )


async def altered(client: RawKafka, *changes: object) -> list[tuple[bytes, int]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[item for item in changes if isinstance(item, ScramCredentialDeletion)],
        upsertions=[item for item in changes if isinstance(item, ScramCredentialUpsertion)],
    )
    reply = await client.call_whole(request, 0)
    return [(item.user, item.error_code) for item in reply.results]


async def described(client: RawKafka, *names: bytes) -> list[tuple[bytes, int, list[tuple]]]:
    users = [UserName(name=name) for name in names] or None
    reply = await client.call_whole(DescribeUserScramCredentialsRequest(users=users), 0)
    return [
        (item.user, item.error_code, [(i.mechanism, i.iterations) for i in item.credential_infos])
        for item in reply.results
    ]


async def test_a_user_is_made_changed_and_deleted(broker: Broker, client: RawKafka) -> None:
    assert await altered(client, upsertion(b"anna"), upsertion(b"anna", 2, 8192)) == [(b"anna", 0)]
    expected = scram_key_of(
        "SCRAM-SHA-256", SALT, 4096, hashlib.pbkdf2_hmac("sha256", PASSWORD, SALT, 4096)
    )
    assert broker.users.scram_key("anna", "SCRAM-SHA-256", HOST) == expected
    assert await described(client) == [(b"anna", 0, [(1, 4096), (2, 8192)])]
    gone = ScramCredentialDeletion(name=b"anna", mechanism=1)
    assert await altered(client, gone) == [(b"anna", 0)]
    assert await altered(client, gone) == [(b"anna", NOT_FOUND)]
    assert await described(client, b"anna", b"bert") == [
        (b"anna", 0, [(2, 8192)]),
        (b"bert", NOT_FOUND, []),
    ]
    assert await described(client, b"anna", b"anna") == [(b"anna", DUPLICATE, [])]


async def test_a_former_password_logs_in_no_more(broker: Broker, client: RawKafka) -> None:
    await broker.users.create("anna", "former")
    assert len(broker.users.get("anna").scram) == 2
    assert await altered(client, upsertion(b"anna", 2)) == [(b"anna", 0)]
    with pytest.raises(NotAuthenticated):
        await broker.users.verify("anna", "former", HOST)
    assert [key.mechanism for key in broker.users.get("anna").scram] == ["SCRAM-SHA-512"]
    assert await altered(client, upsertion(b"anna", 1)) == [(b"anna", 0)]
    assert len(broker.users.get("anna").scram) == 2


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([upsertion(b"anna", 1, 4095)], UNACCEPTABLE),
        ([upsertion(b"anna", 1, 16_385)], UNACCEPTABLE),
        ([upsertion(b"")], UNACCEPTABLE),
        ([upsertion(b"anna\n")], UNACCEPTABLE),
        ([upsertion(b"anna\xff")], UNACCEPTABLE),
        ([upsertion(b"anna", 3)], UNKNOWN_MECHANISM),
        ([upsertion(b"anna"), upsertion(b"anna")], DUPLICATE),
        ([ScramCredentialDeletion(name=b"anna", mechanism=1)], NOT_FOUND),
        ([upsertion(b"role:ops")], 42),
    ],
)
async def test_invalid_changes_are_refused(
    broker: Broker, client: RawKafka, changes: list[object], code: int
) -> None:
    assert [code_given for _, code_given in await altered(client, *changes)] == [code]
    assert broker.users.find("anna") is None


async def test_a_refused_key_leaves_the_others_as_they_were(
    broker: Broker, client: RawKafka
) -> None:
    await altered(client, upsertion(b"anna"))
    gone = ScramCredentialDeletion(name=b"anna", mechanism=1)
    assert await altered(client, gone, upsertion(b"anna", 2, 5)) == [(b"anna", UNACCEPTABLE)]
    assert await described(client) == [(b"anna", 0, [(1, 4096)])]
    assert await altered(client, gone, upsertion(b"anna", 2)) == [(b"anna", 0)]
    assert await described(client) == [(b"anna", 0, [(2, 4096)])]
