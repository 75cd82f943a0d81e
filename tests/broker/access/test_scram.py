"""SCRAM on the user store: the right password is accepted, and no client learns
which users exist.
"""

import pytest

from braidlog.broker.access.authentication import Authentication
from braidlog.broker.access.bearer import TokenVerifier
from braidlog.broker.access.login_throttle import FREE_FAILURES
from braidlog.broker.access.scram import MESSAGE_BYTES_MAX
from braidlog.broker.config.settings import AccessConfig
from braidlog.broker.errors import NotAuthenticated
from conformance.clients.raw.scram import ScramClient
from tests.broker.access.kept_users import KeptUsers

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
AT = "kafka 10.0.0.1"


class ScramUsers:
    """Users, and their SCRAM logins."""

    def __init__(self):
        self.kept = KeptUsers()
        self.users = self.kept.users
        self.failures = []
        self.authentication = Authentication(
            self.users,
            TokenVerifier(AccessConfig()),
            required=True,
            on_attempt=self._note_failure,
        )

    def _note_failure(self, attempt):
        if not attempt.succeeded:
            self.failures.append((attempt.method, attempt.at, attempt.name))

    def log_in(self, mechanism, name, password, **fields):
        client = ScramClient(mechanism, name, password, **fields)
        login = self.authentication.scram(mechanism, AT)
        answer, identity = login.finish(client.last(login.begin(client.first())))
        assert answer == client.expected
        return identity.principal.name


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["anna", "a,b=c", "=2C", "Jürgen"])
async def test_the_right_password_is_accepted(mechanism, name):
    house = ScramUsers()
    await house.users.create(name, "secret")
    assert house.log_in(mechanism, name, "secret") == name
    assert house.log_in(mechanism, name, "secret", binding="y,,") == name
    assert not house.failures


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_and_an_unknown_name_are_answered_alike(mechanism):
    house = ScramUsers()
    await house.users.create("anna", "secret")
    for name, password in (("anna", "wrong"), ("nobody", "secret")):
        with pytest.raises(NotAuthenticated, match="wrong user name or password"):
            house.log_in(mechanism, name, password)
    assert house.failures == [("password", AT, "anna"), ("password", AT, "nobody")]


async def test_an_unknown_name_has_the_same_salt_each_time_and_each_name_its_own():
    house = ScramUsers()

    def salt(name):
        client = ScramClient(MECHANISMS[0], name, "x")
        answer = house.authentication.scram(MECHANISMS[0], AT).begin(client.first())
        return answer.split(b",")[1]

    assert salt("one") == salt("one") != salt("two")


async def test_guessing_is_slowed_down():
    house = ScramUsers()
    await house.users.create("anna", "secret")
    for _ in range(5):
        with pytest.raises(NotAuthenticated, match="wrong"):
            house.log_in(MECHANISMS[0], "anna", "wrong")
    with pytest.raises(NotAuthenticated, match="too many"):
        house.log_in(MECHANISMS[0], "anna", "secret")
    house.kept.clock_s += 60
    assert house.log_in(MECHANISMS[0], "anna", "secret") == "anna"


async def test_a_password_changed_during_the_login_is_refused():
    house = ScramUsers()
    user, _ = await house.users.create("anna", "secret")
    client = ScramClient(MECHANISMS[0], "anna", "secret")
    login = house.authentication.scram(MECHANISMS[0], AT)
    last = client.last(login.begin(client.first()))
    await house.users.set_password(user, "other")
    with pytest.raises(NotAuthenticated):
        login.finish(last)


async def test_an_inactive_user_is_refused():
    house = ScramUsers()
    await house.users.create("anna", "secret", is_active=False)
    with pytest.raises(NotAuthenticated, match="not active"):
        house.log_in(MECHANISMS[0], "anna", "secret")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=anna",
        b"n,,r=abc",
        b"n,,n=,r=abc",
        b"p=tls-unique,,n=anna,r=abc",
        b"n,a=bert,n=anna,r=abc",
        b"n,,m=ext,n=anna,r=abc",
        b"n,,n=an=na,r=abc",
        b"n,,n=anna,r=abc,tokenauth=true",
        b"\xff",
        b"n,,n=anna,r=" + b"x" * MESSAGE_BYTES_MAX,
    ],
)
async def test_a_malformed_first_message_is_refused(message):
    with pytest.raises(NotAuthenticated):
        ScramUsers().authentication.scram(MECHANISMS[0], AT).begin(message)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda last: b"",
        lambda last: last.replace(b"c=biws", b"c=eSws"),
        lambda last: last.replace(b",r=", b",r=x"),
        lambda last: last[:-8],
        lambda last: last.partition(b",p=")[0] + b",p=",
        lambda last: last.partition(b",p=")[0] + b",p=~",
        lambda last: b"\xff" + last,
    ],
)
async def test_a_malformed_last_message_is_refused(spoil):
    house = ScramUsers()
    await house.users.create("anna", "secret")
    client = ScramClient(MECHANISMS[0], "anna", "secret")
    login = house.authentication.scram(MECHANISMS[0], AT)
    with pytest.raises(NotAuthenticated):
        login.finish(spoil(client.last(login.begin(client.first()))))


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_parallel_logins_do_not_bypass_the_wait(mechanism):
    house = ScramUsers()
    await house.users.create("anna", "secret")
    under_way = []
    for password in (*(f"wrong {number}" for number in range(FREE_FAILURES)), "secret"):
        client = ScramClient(mechanism, "anna", password)
        login = house.authentication.scram(mechanism, AT)
        under_way.append((login, client.last(login.begin(client.first()))))
    for login, last in under_way[:-1]:
        with pytest.raises(NotAuthenticated, match="wrong user name or password"):
            login.finish(last)
    login, last = under_way[-1]
    with pytest.raises(NotAuthenticated, match="too many failed logins"):
        login.finish(last)


async def test_failures_at_an_address_do_not_block_its_known_users():
    house = ScramUsers()
    for name in ("anna", "bert"):
        await house.users.create(name, "secret")
    assert house.log_in("SCRAM-SHA-256", "anna", "secret") == "anna"
    for number in range(FREE_FAILURES):
        with pytest.raises(NotAuthenticated):
            house.log_in("SCRAM-SHA-256", f"nobody {number}", "guess")
    with pytest.raises(NotAuthenticated, match="too many failed logins"):
        house.log_in("SCRAM-SHA-256", "bert", "secret")
    assert house.log_in("SCRAM-SHA-512", "anna", "secret") == "anna"
