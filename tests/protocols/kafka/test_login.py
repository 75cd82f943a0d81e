"""Logins by SASL: accepted credentials per mechanism, and requests before the login."""

import struct
from pathlib import Path

import jwt
import pytest

from braidlog.broker.access.rights import Principal
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.machine import LOGIN_FRAME_BYTES_MAX
from braidlog.protocols.kafka.wire.api_versions import ApiVersionsRequest
from braidlog.protocols.kafka.wire.sasl_authenticate import SaslAuthenticateRequest
from braidlog.protocols.kafka.wire.sasl_handshake import SaslHandshakeRequest
from braidlog.storage.metadata.user_records import Grant
from conformance.clients.raw.scram import ScramClient
from tests.protocols.kafka import forms as m
from tests.protocols.kafka.frames import RawKafka, table_request
from tests.protocols.kafka.talk import FOO, second_client
from tests.waiting import until

KEY = Path(__file__).parents[2] / "broker" / "access" / "hs256.key"
SETTINGS = {"access.required": "true", "access.token_secret_file": str(KEY)}
pytestmark = pytest.mark.parametrize("broker", [SETTINGS], indirect=True, ids=[""])
NEVER_S = 2**33
MECHANISMS = [b"PLAIN", b"SCRAM-SHA-256", b"SCRAM-SHA-512", b"OAUTHBEARER"]


@pytest.fixture
async def stranger(broker, open_client):
    await broker.users.create("anna", "secret")
    client = await second_client(open_client)
    yield client
    await client.stream.aclose()


async def handshake(client: RawKafka, mechanism: bytes, version: int = 1):
    return await client.call_with_table(SaslHandshakeRequest(mechanism=mechanism), version)


async def send(client: RawKafka, data: bytes, version: int = 1):
    return await client.call_with_table(SaslAuthenticateRequest(auth_bytes=data), version)


def plain(name: str, password: str) -> bytes:
    return f"\0{name}\0{password}".encode()


def bearer(name: str, expires_s: float = NEVER_S, acts_for: str = "") -> bytes:
    token = jwt.encode({"sub": name, "exp": expires_s}, KEY.read_bytes())
    return f"n,{acts_for},\1auth=Bearer {token}\1\1".encode()


async def principal_of(broker) -> Principal:
    (connection,) = broker.connections
    return connection.principal


@pytest.mark.parametrize("version", [0, 1])
async def test_a_name_and_its_password_are_accepted(stranger, broker, version):
    shaken = await handshake(stranger, b"PLAIN")
    assert (shaken.error_code, shaken.mechanisms) == (Code.NONE, MECHANISMS)
    done = await send(stranger, plain("anna", "secret"), version)
    assert (done.error_code, done.auth_bytes) == (Code.NONE, b"")
    assert await principal_of(broker) == Principal("anna")
    reply = await stranger.call(m.MetadataRequest([]))
    assert isinstance(reply, m.MetadataReply)


@pytest.mark.parametrize("mechanism", MECHANISMS[1:3], ids=bytes.decode)
async def test_scram_logs_in_without_sending_the_password(stranger, broker, mechanism):
    client = ScramClient(mechanism.decode(), "anna", "secret")
    await handshake(stranger, mechanism)
    challenge = await send(stranger, client.first())
    done = await send(stranger, client.last(challenge.auth_bytes))
    assert (done.error_code, done.auth_bytes) == (Code.NONE, client.expected)
    assert await principal_of(broker) == Principal("anna")


@pytest.mark.parametrize("acts_for", ["", "a=carl"])
async def test_a_signed_token_is_accepted(stranger, broker, acts_for):
    await handshake(stranger, b"OAUTHBEARER")
    assert (await send(stranger, bearer("carl", acts_for=acts_for))).error_code == Code.NONE
    assert await principal_of(broker) == Principal("carl")


async def test_an_access_token_is_accepted(stranger, broker):
    token, _ = await broker.users.create_token(broker.users.get("anna"), "t", None)
    await handshake(stranger, b"OAUTHBEARER")
    data = b"n,,\1host=x\1auth=Bearer " + token.encode() + b"\1\1"
    assert (await send(stranger, data)).error_code == Code.NONE
    assert await principal_of(broker) == Principal("anna")


@pytest.mark.parametrize(
    ("mechanism", "data"),
    [
        (b"PLAIN", plain("anna", "wrong")),
        (b"PLAIN", plain("nobody", "secret")),
        (b"PLAIN", b"bert\0anna\0secret"),
        (b"PLAIN", b"anna\0secret"),
        (b"PLAIN", b""),
        (b"PLAIN", b"\0\xff\0x"),
        (b"SCRAM-SHA-256", b"n,,n=anna"),
        (b"OAUTHBEARER", bearer("carl", expires_s=1)),
        (b"OAUTHBEARER", bearer("carl", acts_for="a=anna")),
        (b"OAUTHBEARER", b"n,,\1auth=Basic x\1\1"),
        (b"OAUTHBEARER", b"\xff"),
        (b"OAUTHBEARER", b""),
    ],
)
async def test_other_credentials_are_refused_and_end_the_connection(
    stranger, broker, mechanism, data
):
    await handshake(stranger, mechanism)
    refused = await send(stranger, data)
    assert refused.error_code == Code.SASL_AUTHENTICATION_FAILED
    assert refused.error_message and b"secret" not in refused.error_message
    assert await stranger.frame() is None


async def test_a_wrong_scram_proof_is_refused(stranger):
    client = ScramClient("SCRAM-SHA-256", "anna", "wrong")
    await handshake(stranger, b"SCRAM-SHA-256")
    challenge = await send(stranger, client.first())
    done = await send(stranger, client.last(challenge.auth_bytes))
    assert done.error_code == Code.SASL_AUTHENTICATION_FAILED


async def test_an_unknown_mechanism_gets_the_known_mechanisms(stranger):
    shaken = await handshake(stranger, b"GSSAPI")
    assert (shaken.error_code, shaken.mechanisms) == (Code.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
    assert await stranger.frame() is None


async def test_a_login_without_a_handshake_ends_the_connection(stranger):
    assert (await send(stranger, plain("anna", "secret"))).error_code == Code.ILLEGAL_SASL_STATE
    assert await stranger.frame() is None


async def test_a_second_handshake_within_a_login_ends_the_connection(stranger):
    await handshake(stranger, b"PLAIN")
    assert (await handshake(stranger, b"PLAIN")).error_code == Code.ILLEGAL_SASL_STATE
    assert await stranger.frame() is None


async def test_a_second_login_is_refused(stranger):
    await handshake(stranger, b"PLAIN")
    await send(stranger, plain("anna", "secret"))
    assert (await handshake(stranger, b"PLAIN")).error_code == Code.ILLEGAL_SASL_STATE
    assert (await send(stranger, plain("anna", "secret"))).error_code == Code.ILLEGAL_SASL_STATE
    assert isinstance(await stranger.call(m.MetadataRequest([])), m.MetadataReply)


async def test_version_0_continues_with_raw_messages(stranger, broker):
    await handshake(stranger, b"PLAIN", version=0)
    data = plain("anna", "secret")
    await stranger.stream.send_all(struct.pack(">i", len(data)) + data)
    assert await stranger.frame() == bytes(4)
    assert await principal_of(broker) == Principal("anna")
    assert isinstance(await stranger.call(m.MetadataRequest([])), m.MetadataReply)


async def test_version_0_ends_the_connection_after_a_refused_login(stranger):
    await handshake(stranger, b"PLAIN", version=0)
    data = plain("anna", "wrong")
    await stranger.stream.send_all(struct.pack(">i", len(data)) + data)
    assert await stranger.frame() is None


async def test_before_the_login_other_requests_end_the_connection(stranger):
    assert (await stranger.call_with_table(ApiVersionsRequest(), 0)).error_code == Code.NONE
    await stranger.send(m.MetadataRequest([FOO]))
    assert await stranger.frame() is None


async def test_before_the_login_large_frames_are_refused_at_once(stranger):
    frame = table_request(
        36, 1, 1, SaslAuthenticateRequest(auth_bytes=bytes(LOGIN_FRAME_BYTES_MAX))
    )
    await stranger.stream.send_all(frame[:20])
    assert await stranger.frame() is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_deactivated_user_has_no_connection_left(stranger, broker, mechanism):
    await handshake(stranger, mechanism.encode())
    if mechanism == "PLAIN":
        await send(stranger, plain("anna", "secret"))
    else:
        scram = ScramClient(mechanism, "anna", "secret")
        challenge = (await send(stranger, scram.first())).auth_bytes
        await send(stranger, scram.last(challenge))
    (connection,) = broker.connections
    connection.access_changed()
    assert connection.is_open
    await broker.users.alter(broker.users.get("anna"), is_active=False)
    connection.access_changed()
    assert await stranger.frame() is None


@pytest.fixture
async def legacy(broker, open_client, stranger):
    """Yield a client of a listener whose clients are all the same user, with the readers role."""
    await broker.users.create("legacy", None, roles=["readers"])
    await broker.permissions.grant(Grant("role:readers", "admin", "*"))
    broker.listeners["kafka"].principal = "legacy"
    return await second_client(open_client)


async def may_see(client) -> bool:
    error = (await client.call(m.MetadataRequest([FOO]))).topics[0].error
    assert error in (Code.TOPIC_AUTHORIZATION_FAILED, Code.NONE), error
    return error == Code.NONE


async def revoke_right(change, broker):
    user = broker.users.get("legacy")
    if change == "the role from the user":
        await broker.users.alter(user, roles=[])
    elif change == "the right from the role":
        await broker.permissions.revoke(Grant("role:readers", "admin", "*"))
    else:
        await broker.users.delete(user)


@pytest.mark.parametrize(
    "change", ["the role from the user", "the right from the role", "the user from all"]
)
async def test_the_user_of_a_listener_loses_revoked_permissions(legacy, broker, change):
    assert await may_see(legacy)
    await revoke_right(change, broker)
    for connection in broker.connections:  # Within ACCESS_SWEEP_S; see `watch_access`.
        connection.access_changed()
    assert not await may_see(legacy)


async def test_a_deactivated_listener_user_has_no_connection_left(legacy, broker, open_client):
    assert await may_see(legacy)
    await broker.users.alter(broker.users.get("legacy"), is_active=False)
    for connection in broker.connections:
        connection.access_changed()
    assert await legacy.frame() is None
    later = await second_client(open_client)
    assert await later.frame() is None


async def test_a_listener_user_inactive_for_a_moment(legacy, broker):
    for is_active in (False, True):
        await broker.users.alter(broker.users.get("legacy"), is_active=is_active)
    for connection in broker.connections:
        connection.access_changed()
    assert await legacy.frame() is None


async def test_logins_refusals_and_connections_are_counted_by_user(stranger, broker):
    def figures():
        names = ("logins", "refusals", "connections")
        return [broker.metrics.number(f"braidlog_user_{name}", "anna").value for name in names]

    await handshake(stranger, b"PLAIN")
    await send(stranger, plain("anna", "secret"))
    await stranger.call(m.MetadataRequest([FOO]))
    assert figures() == [1, 1, 1]
    await stranger.stream.aclose()
    await until(lambda: figures() == [1, 1, 0])
