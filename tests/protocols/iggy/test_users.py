"""Users, passwords and access tokens over dialect D2, and users other than root."""

import struct

import pytest
import trio

from braidlog.broker.access.login_throttle import FREE_FAILURES
from braidlog.broker.access.rights import Principal
from braidlog.broker.access.rules import Grant
from braidlog.broker.server.adapters import EndConnection
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.session import LOGIN_S, LOOK_S
from tests.protocols.iggy import description
from tests.protocols.iggy.description import named
from tests.protocols.iggy.talk import NEVER

GET_USER, GET_USERS, CREATE, DELETE, UPDATE, PERMISSIONS, PASSWORD = 31, 32, 33, 34, 35, 36, 37
LOGIN, LOGOUT, TOKENS, CREATE_TOKEN, DELETE_TOKEN, LOGIN_TOKEN = 38, 39, 41, 42, 43, 44
BOB = {"username": "bob", "password": "secret1", "status": 1, "permissions": None}
ALL = b"\x01" * 10 + b"\x00"


async def login(talk, name, password):
    return await talk.ask(LOGIN, username=name, password=password, version="0.6.202", context="")


async def test_root_is_the_first_user_and_has_all_permissions(talk):
    assert await talk.ask(GET_USERS) == {
        "status": 0,
        "users": [{"id": 1, "created_at": 0, "status": 1, "username": "iggy"}],
    }
    shown = await talk.ask(GET_USER, user=named("iggy"))
    assert (shown["user"]["id"], shown["permissions"]) == (1, ALL)
    assert await talk.ask(GET_USER, user=named(1)) == shown


async def test_a_user_is_created_shown_changed_and_deleted(talk, broker):
    created = await talk.ask(CREATE, **BOB)
    assert created["user"]["username"] == "bob"
    number = created["user"]["id"]
    assert number == 2
    assert await talk.ask(GET_USER, user=named("bob")) == created
    assert await talk.status(UPDATE, user=named("bob"), username="bobby", status=2) == 0
    shown = await talk.ask(GET_USER, user=named(number))
    assert (shown["user"]["username"], shown["user"]["status"]) == ("bobby", 2)
    assert await talk.status(DELETE, user=named("bobby")) == 0
    assert await talk.ask(GET_USER, user=named("bobby")) == {"status": 0}
    assert await talk.status(DELETE, user=named("bobby")) == ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"username": "iggy"}, ErrorCode.USER_ALREADY_EXISTS),
        ({"username": "bo"}, ErrorCode.INVALID_USERNAME),
        ({"username": "b" * 51}, ErrorCode.INVALID_USERNAME),
        ({"username": "b\tb"}, ErrorCode.INVALID_USERNAME),
        ({"password": "pw"}, ErrorCode.INVALID_PASSWORD),
        ({"password": "p" * 101}, ErrorCode.INVALID_PASSWORD),
        ({"status": 3}, ErrorCode.INVALID_USER_STATUS),
    ],
)
async def test_an_invalid_user_is_refused(talk, broker, changed, status):
    assert await talk.status(CREATE, **BOB | changed) == status
    assert broker.users.all() == []


async def test_a_user_logs_in_and_is_its_principal(talk, connect, broker):
    await talk.ask(CREATE, **BOB)
    other = await connect()
    assert (await login(other, "bob", "wrong"))["status"] == ErrorCode.INVALID_CREDENTIALS
    assert (await login(other, "bob", "secret1")) == {"status": 0, "user_id": 2}
    me = await other.ask(20)
    assert me["client"]["user_id"] == 2
    principals = {connection.principal for connection in broker.connections}
    assert principals == {Principal("iggy"), Principal("bob")}


async def test_an_inactive_user_cannot_log_in(talk, connect):
    await talk.ask(CREATE, **BOB | {"status": 2})
    other = await connect()
    assert (await login(other, "bob", "secret1"))["status"] == ErrorCode.INVALID_CREDENTIALS


async def test_a_user_is_created_despite_a_byte_after_the_permissions(talk):
    request = description.request(CREATE, **BOB | {"permissions": ALL})
    longer = (
        struct.pack("<I", len(request) - 3) + request[4:] + b"\0"
    )  # As Go's clients up to 0.6 do.
    assert (await talk.exchange(longer))[:4] == bytes(4)
    assert (await talk.ask(GET_USER, user=named("bob")))["permissions"] == ALL


async def test_a_users_status_is_changed_despite_a_trailing_byte(talk):
    number = (await talk.ask(CREATE, **BOB))["user"]["id"]
    named_by_number = struct.pack("<BBI", 1, 4, number)
    change = named_by_number + bytes([0, 1, 2]) + b"\0"  # No new name; inactive; C#'s byte.
    sent = struct.pack("<II", 4 + len(change), UPDATE) + change
    assert (await talk.exchange(sent))[:4] == bytes(4)
    assert (await talk.ask(GET_USER, user=named("bob")))["user"]["status"] == 2


async def test_permissions_are_removed_despite_trailing_bytes(talk):
    number = (await talk.ask(CREATE, **BOB | {"permissions": ALL}))["user"]["id"]
    none = b"\0" + struct.pack("<IB", 1, 0)  # As from Node's clients.
    change = struct.pack("<BBI", 1, 4, number) + none
    sent = struct.pack("<II", 4 + len(change), PERMISSIONS) + change
    assert (await talk.exchange(sent))[:4] == bytes(4)
    assert (await talk.ask(GET_USER, user=named("bob"))).get("permissions") is None


async def test_the_password_of_an_inactive_user_is_changed(talk, connect):
    await talk.ask(CREATE, **BOB | {"status": 2})
    change = {"user": named("bob"), "old": "secret1", "new": "secret2"}
    assert await talk.status(PASSWORD, **change) == 0
    other = await connect()
    assert (await login(other, "bob", "secret2"))["status"] == ErrorCode.INVALID_CREDENTIALS
    await talk.ask(UPDATE, user=named("bob"), username=None, status=1)
    assert (await login(other, "bob", "secret1"))["status"] == ErrorCode.INVALID_CREDENTIALS
    assert (await login(other, "bob", "secret2"))["status"] == 0


async def test_only_root_manages_users(talk, connect):
    await talk.ask(CREATE, **BOB)
    bob = await connect()
    await login(bob, "bob", "secret1")
    assert await bob.status(GET_USERS) == ErrorCode.UNAUTHORIZED
    assert await bob.status(CREATE, **BOB | {"username": "eve"}) == ErrorCode.UNAUTHORIZED
    assert await bob.status(DELETE, user=named("bob")) == ErrorCode.UNAUTHORIZED
    change = {"user": named("iggy"), "old": "iggy", "new": "mine"}
    assert await bob.status(PASSWORD, **change) == ErrorCode.UNAUTHORIZED


async def test_root_cannot_be_deleted(talk):
    assert await talk.status(DELETE, user=named("iggy")) == ErrorCode.CANNOT_DELETE_USER
    assert (
        await talk.status(PERMISSIONS, user=named("iggy"), permissions=None)
        == ErrorCode.CANNOT_CHANGE_PERMISSIONS
    )
    rename = {"user": named("iggy"), "username": "root", "status": None}
    assert await talk.status(UPDATE, **rename) == ErrorCode.FEATURE_UNAVAILABLE


async def test_a_user_changes_its_own_password(talk, connect):
    await talk.ask(CREATE, **BOB)
    bob = await connect()
    await login(bob, "bob", "secret1")
    change = {"user": named("bob"), "new": "secret2"}
    assert await bob.status(PASSWORD, **change, old="nope") == ErrorCode.INVALID_CREDENTIALS
    assert await bob.status(PASSWORD, **change, old="secret1") == 0
    again = await connect()
    assert (await login(again, "bob", "secret1"))["status"] == ErrorCode.INVALID_CREDENTIALS
    assert (await login(again, "bob", "secret2"))["status"] == 0


async def test_a_changed_root_password_is_kept(talk, connect, broker):
    change = {"user": named("iggy"), "old": "iggy", "new": "better"}
    assert await talk.status(PASSWORD, **change | {"old": "no"}) == ErrorCode.INVALID_CREDENTIALS
    assert await talk.status(PASSWORD, **change) == 0
    other = await connect()
    assert (await login(other, "iggy", "iggy"))["status"] == ErrorCode.INVALID_CREDENTIALS
    assert (await login(other, "iggy", "better")) == {"status": 0, "user_id": 1}
    assert "better" not in repr(broker.users.all())


@pytest.mark.parametrize("name", ["iggy", "nobody"])
async def test_root_and_unknown_names_are_equally_hard_to_guess(connect, broker, name):
    guessing = await connect()
    numbers = broker.metrics.number
    for number in range(FREE_FAILURES):
        hashes = numbers("braidlog_password_hashes").value
        answer = await login(guessing, name, f"guess {number}")
        assert answer["status"] == ErrorCode.INVALID_CREDENTIALS
        assert numbers("braidlog_password_hashes").value > hashes
    assert (await login(guessing, name, "iggy"))["status"] == ErrorCode.INVALID_CREDENTIALS
    assert numbers("braidlog_logins_refused", "password").value == FREE_FAILURES + 1


async def test_another_user_of_roots_name_has_a_different_password(connect, broker):
    await broker.users.create("iggy", None)
    other = await connect()
    assert (await login(other, "iggy", "iggy"))["status"] == ErrorCode.INVALID_CREDENTIALS


@pytest.mark.parametrize("name", ["iggy", "bob"])
async def test_a_token_works_until_its_deletion(talk, connect, name):
    await talk.ask(CREATE, **BOB)
    owner = await connect()
    await login(owner, name, "iggy" if name == "iggy" else "secret1")
    assert await owner.ask(TOKENS) == {"status": 0}
    raw = (await owner.ask(CREATE_TOKEN, name="tok", expiry=0))["token"]
    assert await owner.ask(TOKENS) == {"status": 0, "tokens": [{"name": "tok", "expires": 0}]}
    assert await owner.status(CREATE_TOKEN, name="tok", expiry=0) == ErrorCode.TOKEN_ALREADY_EXISTS
    other = await connect()
    assert await other.status(LOGIN_TOKEN, token="x" * 40) == ErrorCode.INVALID_TOKEN
    assert (await other.ask(LOGIN_TOKEN, token=raw))["user_id"] == (0 if name == "iggy" else 1)
    assert await owner.status(DELETE_TOKEN, name="tok") == 0
    assert await owner.status(DELETE_TOKEN, name="tok") == ErrorCode.RESOURCE_NOT_FOUND
    assert await other.status(LOGIN_TOKEN, token=raw) == ErrorCode.INVALID_TOKEN
    assert (await login(other, "iggy", "iggy"))["status"] == 0  # A token removes nothing.


@pytest.mark.parametrize(("name", "is_good"), [("to", False), ("t" * 30, True), ("t" * 31, False)])
async def test_names_of_tokens(talk, name, is_good):
    expected = 0 if is_good else ErrorCode.INVALID_TOKEN_NAME
    assert await talk.status(CREATE_TOKEN, name=name, expiry=NEVER) == expected


async def test_a_token_works_and_is_deleted_despite_trailing_bytes(talk, connect):
    raw = (await talk.ask(CREATE_TOKEN, name="tok", expiry=0))["token"]
    other = await connect()
    for code, field in ((LOGIN_TOKEN, {"token": raw}), (DELETE_TOKEN, {"name": "tok"})):
        sent = description.request(code, **field)
        longer = struct.pack("<I", len(sent)) + sent[4:] + bytes(4)  # As C#'s clients do.
        assert (await other.exchange(longer))[:4] == bytes(4)
    assert await talk.ask(TOKENS) == {"status": 0}


async def test_a_token_expires(talk, connect, broker):
    raw = (await talk.ask(CREATE_TOKEN, name="tok", expiry=1))["token"]  # A microsecond.
    other = await connect()
    assert await other.status(LOGIN_TOKEN, token=raw) == ErrorCode.INVALID_TOKEN
    later = (await talk.ask(CREATE_TOKEN, name="later", expiry=10**12))["token"]
    assert await other.status(LOGIN_TOKEN, token=later) == 0


@pytest.mark.parametrize("broker", [{"access.required": "true"}], indirect=True)
async def test_with_authentication_nothing_is_served_before_login(connect):
    talk = await connect()
    assert await talk.status(201) == ErrorCode.UNAUTHENTICATED
    assert await talk.status(1) == 0


async def test_a_client_without_login_is_disconnected(connect, broker):
    talk = await connect()
    assert await talk.status(1) == 0  # A ping is not enough.
    (connection,) = broker.connections
    session = connection._session
    due = session.on_deadline(0.0)
    assert due <= trio.current_time() + LOGIN_S
    with pytest.raises(EndConnection):
        session.on_deadline(due)
    assert await talk.login() == 0
    assert session.on_deadline(due) > due


async def test_a_connection_ends_when_its_token_expires(talk, connect, broker):
    await talk.ask(CREATE, **BOB)
    bob = broker.users.get("bob")
    now_us = broker.now_us()
    short, _ = await broker.users.create_token(bob, "short", now_us + 60_000_000)
    later, _ = await broker.users.create_token(bob, "later", now_us + 120_000_000)
    other = await connect()
    assert await other.status(LOGIN_TOKEN, token=short) == 0
    (connection,) = (
        connection for connection in broker.connections if connection.principal.name == "bob"
    )
    session = connection._session
    assert session.on_deadline(0.0) == LOOK_S
    broker.now_us = lambda: now_us + 60_000_000
    with pytest.raises(EndConnection, match="has expired"):
        session.on_deadline(LOOK_S)
    assert await other.status(LOGIN_TOKEN, token=later) == 0
    assert session.on_deadline(LOOK_S) == 2 * LOOK_S


async def test_the_oldest_dialect_needs_no_login(connect, broker):
    talk = await connect(without_login=True)
    assert await talk.status(201) == 0
    (connection,) = broker.connections
    due = connection._session.on_deadline(0.0)
    assert connection._session.on_deadline(due) > due


@pytest.mark.limits(users=1)
async def test_users_are_limited_in_number(talk, broker):
    assert await talk.status(CREATE, **BOB) == 0
    eve = BOB | {"username": "eve"}
    assert await talk.status(CREATE, **eve) == ErrorCode.USERS_LIMIT_REACHED
    assert [user.name for user in broker.users.all()] == ["bob"]


@pytest.mark.limits(user_tokens=1)
async def test_a_users_tokens_are_limited_in_number(talk, connect):
    await talk.ask(CREATE, **BOB)
    bob = await connect()
    await login(bob, "bob", "secret1")
    assert await bob.status(CREATE_TOKEN, name="one", expiry=0) == 0
    status = await bob.status(CREATE_TOKEN, name="two", expiry=0)
    assert status == ErrorCode.TOKENS_LIMIT_REACHED
    assert await bob.status(DELETE_TOKEN, name="one") == 0
    assert await bob.status(CREATE_TOKEN, name="two", expiry=0) == 0


@pytest.mark.parametrize(
    ("granted", "flags"),
    [
        (Grant("bob", "admin", "*"), [1] * 10),
        (Grant("bob", "produce", "public/gone"), [0] * 10),
        (Grant("bob", "produce", "public/gone/t"), [0] * 10),
    ],
    ids=["everything", "a stream that is gone", "a topic that is gone"],
)
async def test_grants_of_other_tools_are_shown_as_far_as_possible(talk, broker, granted, flags):
    await talk.ask(CREATE, **BOB)
    await broker.permissions.grant(granted)
    shown = await talk.ask(GET_USER, user=named("bob"))
    raw = bytes(shown["permissions"])
    assert list(raw[:10]) == flags
    assert raw[10:] == b"\0"  # No stream permissions.
