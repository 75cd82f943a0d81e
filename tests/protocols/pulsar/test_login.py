"""CONNECT and AUTH_RESPONSE at a broker with authentication."""

from pathlib import Path

import jwt
import pytest
import trio

from braidlog.broker.access.rights import Principal
from braidlog.protocols.pulsar.login import NO_REQUEST, REFRESH
from braidlog.protocols.pulsar.machine import Type
from braidlog.protocols.pulsar.session import KEEPALIVE_S
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import ServerError
from braidlog.storage.metadata.user_records import Grant
from tests.protocols.pulsar.talk import NAME, TOPIC, RawPulsar, entry
from tests.waiting import until

KEY = Path(__file__).parents[2] / "broker" / "access" / "hs256.key"
SETTINGS = {
    "access.required": "true",
    "access.superusers": "root",
    "access.token_secret_file": str(KEY),
}
closed_to_strangers = pytest.mark.parametrize("broker", [SETTINGS], indirect=True, ids=[""])
pytestmark = closed_to_strangers
NEVER_S = 2**33


def token(name="root", expires_s=NEVER_S):
    return jwt.encode({"sub": name, "exp": expires_s}, KEY.read_bytes()).encode()


@pytest.fixture
async def stranger(open_client):
    client = RawPulsar(await open_client("pulsar"))
    yield client
    await client.stream.aclose()


async def connect(client, method="token", data=b"", refreshes=True, version=20):
    await client.send(
        Type.CONNECT,
        client_version="test",
        protocol_version=version,
        auth_method_name=method,
        auth_data=data,
        feature_flags={"supports_auth_refresh": refreshes},
    )


async def is_refused(client):
    refused = await client.next(Type.ERROR)
    assert (refused.request_id, refused.error) == (NO_REQUEST, ServerError.AuthenticationError)
    assert await client.frame() is None


async def test_a_token_is_accepted(stranger, broker):
    await connect(stranger, data=token("anna"))
    await stranger.next(Type.CONNECTED)
    (connection,) = broker.connections
    assert connection.principal == Principal("anna")


async def with_listeners_principal(broker):
    """Return the only connection, with the principal that its listener gives to every client."""
    await until(lambda: broker.connections)
    (connection,) = broker.connections
    connection.act_for(Principal("house"))
    return connection


async def test_the_listeners_principal_is_for_clients_without_credentials(stranger, broker):
    connection = await with_listeners_principal(broker)
    await connect(stranger, method="")
    await stranger.next(Type.CONNECTED)
    assert connection.principal == Principal("house")


async def test_valid_credentials_win_over_the_listeners_principal(stranger, broker):
    connection = await with_listeners_principal(broker)
    await connect(stranger, data=token("root"))
    await stranger.next(Type.CONNECTED)
    assert connection.principal.name == "root"


async def test_wrong_credentials_are_refused_in_spite_of_the_listeners_principal(stranger, broker):
    await with_listeners_principal(broker)
    await connect(stranger, data=b"nonsense")
    await is_refused(stranger)


async def test_name_and_password_are_accepted(stranger, broker):
    await broker.users.create("anna", "secret:one")
    await connect(stranger, "basic", b"anna:secret:one")
    await stranger.next(Type.CONNECTED)
    (connection,) = broker.connections
    assert connection.principal == Principal("anna")


async def test_an_access_token_is_accepted(stranger, broker):
    anna, _ = await broker.users.create("anna", None)
    text, _ = await broker.users.create_token(anna, "ci", None)
    await connect(stranger, data=text.encode())
    await stranger.next(Type.CONNECTED)


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("", b""),
        ("none", b""),
        ("token", b""),
        ("token", b"a.b.c"),
        ("token", token(expires_s=1)),
        ("token", b"\xff\xfe"),
        ("basic", b"nobody:secret"),
        ("basic", b""),
        ("sasl", token()),
    ],
)
async def test_other_credentials_are_refused(stranger, method, data):
    await connect(stranger, method, data)
    await is_refused(stranger)


async def test_before_connect_no_command_is_served(stranger, broker):
    await stranger.send(Type.PRODUCER, topic=TOPIC, producer_id=0, request_id=1)
    assert await stranger.frame() is None
    assert len(broker.topics) == 0


async def test_commands_behind_a_refused_connect_are_not_served(stranger, broker):
    await connect(stranger, data=b"a.b.c")
    await stranger.send(Type.PRODUCER, topic=TOPIC, producer_id=0, request_id=1)
    await is_refused(stranger)
    assert len(broker.topics) == 0


async def test_a_user_has_its_granted_permissions(stranger, broker):
    await broker.permissions.grant(Grant("anna", "create", "public/default"))
    await broker.permissions.grant(Grant("anna", "produce", "public/default/t"))
    await connect(stranger, data=token("anna"))
    await stranger.next(Type.CONNECTED)
    await stranger.produce()
    refused = await stranger.ask(
        Type.SUBSCRIBE,
        Type.ERROR,
        topic=TOPIC,
        subscription="s",
        subType=0,
        consumer_id=0,
    )
    assert refused.error == ServerError.AuthorizationError


@pytest.fixture
def past_a_tick(broker):
    async def past_a_tick(client):
        """Let a keepalive tick pass, after a received sign of life from the client.

        The clock would not wait for bytes in transit.
        """
        (connection,) = broker.connections
        begun = connection._receiver.begun
        await client.send(Type.PONG)
        await until(lambda: connection._receiver.begun > begun)
        await trio.sleep(KEEPALIVE_S + 1)

    return past_a_tick


@pytest.fixture
async def expiring(stranger, broker):
    """Return a client whose token expires ten seconds after its login, by the test's clock."""
    now = [broker.now_us()]
    broker.now_us = lambda: now[0]

    async def come_in(**more):
        await connect(stranger, data=token("root", now[0] // 1_000_000 + 10), **more)
        await stranger.next(Type.CONNECTED)
        now[0] += 11_000_000
        return stranger

    return come_in


async def test_an_expired_token_is_requested_again(expiring, past_a_tick, autojump_clock):
    client = await expiring()
    await past_a_tick(client)
    challenge = await client.next(Type.AUTH_CHALLENGE)
    assert challenge.challenge.auth_data == REFRESH
    fresh = {"auth_method_name": "token", "auth_data": token()}
    await client.send(Type.AUTH_RESPONSE, response=fresh)
    await client.produce()
    await past_a_tick(client)
    await client.produce(producer_id=1)


async def test_an_expired_access_token_is_requested_again_and_the_new_can_be_revoked(
    stranger, broker, past_a_tick, autojump_clock
):
    anna, _ = await broker.users.create("anna", None)
    now_us = broker.now_us()
    text, _ = await broker.users.create_token(anna, "short", now_us + 10_000_000)
    await connect(stranger, data=text.encode())
    await stranger.next(Type.CONNECTED)
    broker.now_us = lambda: now_us + 10_000_000
    await past_a_tick(stranger)
    await stranger.next(Type.AUTH_CHALLENGE)
    fresh, _ = await broker.users.create_token(anna, "fresh", None)
    response = {"auth_method_name": "token", "auth_data": fresh.encode()}
    await stranger.send(Type.AUTH_RESPONSE, response=response)
    await past_a_tick(stranger)
    (connection,) = broker.connections
    await broker.users.delete_token(anna, "short")
    connection.access_changed()
    assert connection.is_open
    await broker.users.delete_token(anna, "fresh")
    connection.access_changed()
    assert not connection.is_open


@pytest.mark.parametrize("data", [token("anna"), b"a.b.c"])
async def test_a_fresh_token_must_be_valid_and_of_the_same_user(
    expiring, past_a_tick, autojump_clock, data
):
    client = await expiring()
    await past_a_tick(client)
    await client.next(Type.AUTH_CHALLENGE)
    await client.send(Type.AUTH_RESPONSE, response={"auth_method_name": "token", "auth_data": data})
    await is_refused(client)


async def test_a_client_that_ignores_the_challenge_is_disconnected(
    expiring, past_a_tick, autojump_clock
):
    client = await expiring()
    await past_a_tick(client)
    await client.next(Type.AUTH_CHALLENGE)
    await past_a_tick(client)
    assert await client.frame() is None


@pytest.mark.parametrize("more", [{"refreshes": False}, {"version": 13}])
async def test_a_client_without_challenges_is_disconnected(
    expiring, past_a_tick, autojump_clock, more
):
    client = await expiring(**more)
    await past_a_tick(client)
    assert await client.frame() is None


async def come_in(client, broker, name="anna", **more):
    """Log in as a user with all permissions on the topic."""
    await broker.permissions.grant(Grant(name, "admin", "public/default/t"))
    await connect(client, data=token(name), **more)
    await client.next(Type.CONNECTED)


def told_of_changes(broker):
    for connection in tuple(broker.connections):
        connection.access_changed()


async def test_revoked_producers_and_consumers_are_closed_and_refused(stranger, broker):
    await come_in(stranger, broker)
    await stranger.produce()
    await stranger.subscribe()
    await broker.permissions.grant(Grant("anna", "consume", "public/default/t@s"))
    told_of_changes(broker)
    await stranger.produce()  # No permission was removed.
    await broker.permissions.revoke(Grant("anna", "admin", "public/default/t"))
    told_of_changes(broker)
    assert (await stranger.next(Type.CLOSE_PRODUCER)).producer_id == 0
    refused = await stranger.refused(Type.PRODUCER, topic=TOPIC, producer_id=0)
    assert refused[0] == ServerError.AuthorizationError
    await broker.permissions.revoke(Grant("anna", "consume", "public/default/t@s"))
    told_of_changes(broker)
    assert (await stranger.next(Type.CLOSE_CONSUMER)).consumer_id == 0
    # Dropped, as if in transit.
    await stranger.send(Type.SEND, entry(), producer_id=0, sequence_id=0)
    await stranger.send(Type.PING)
    await stranger.next(Type.PONG)
    assert broker.topics.get(NAME).partition(0).next_offset == 0


async def test_a_waiting_producer_is_refused_after_a_revocation(stranger, broker, open_client):
    await come_in(stranger, broker)
    await stranger.produce(producer_access_mode=1)
    other = RawPulsar(await open_client("pulsar"))
    await come_in(other, broker, "bert")
    waiting = {"topic": TOPIC, "producer_id": 0, "request_id": 9, "producer_access_mode": 2}
    await other.send(Type.PRODUCER, **waiting)
    await other.next(Type.PRODUCER_SUCCESS)  # Not ready yet.
    await broker.permissions.revoke(Grant("bert", "admin", "public/default/t"))
    told_of_changes(broker)
    refused = await other.next(Type.ERROR)
    assert (refused.request_id, refused.error) == (9, ServerError.AuthorizationError)
    await other.stream.aclose()


async def test_old_clients_are_disconnected_after_a_revocation(stranger, broker):
    await come_in(stranger, broker, version=4)
    await stranger.produce()
    await broker.permissions.revoke(Grant("anna", "admin", "public/default/t"))
    told_of_changes(broker)
    assert await stranger.frame() is None


async def test_a_connection_follows_its_users_roles_and_ends_with_the_user(stranger, broker):
    anna, _ = await broker.users.create("anna", None, roles=["writers"])
    await broker.permissions.grant(Grant("role:writers", "admin", "public/default/t"))
    text, _ = await broker.users.create_token(anna, "ci", None)
    await connect(stranger, data=text.encode())
    await stranger.next(Type.CONNECTED)
    await stranger.produce()
    await broker.users.alter(anna, roles=[])
    told_of_changes(broker)
    await stranger.next(Type.CLOSE_PRODUCER)
    await broker.users.delete_token(anna, "ci")
    told_of_changes(broker)
    assert await stranger.frame() is None


@pytest.mark.parametrize("how", ["removed", "inactive", "inactive for a moment"])
async def test_a_deleted_user_has_no_connection_left(stranger, broker, how):
    anna, _ = await broker.users.create("anna", "secret")
    await connect(stranger, "basic", b"anna:secret")
    await stranger.next(Type.CONNECTED)
    if how == "removed":
        await broker.users.delete(anna)
    else:
        await broker.users.alter(anna, is_active=False)
    if how == "inactive for a moment":
        await broker.users.alter(anna, is_active=True)
    told_of_changes(broker)
    assert await stranger.frame() is None
