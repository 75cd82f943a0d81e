"""HTTP requests with an effect, sent to another broker than the owner, while the owner's answer is
lost: the client's answer is true, and a repeat does no harm.
"""

from contextlib import asynccontextmanager
from urllib.parse import urlencode

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.protocols.http.requests import READING
from conformance.cluster.unanswered_kinds import ChangeOutcome
from tests.broker.access.rules import Nothing
from tests.broker.cluster.cut_links import States, check_told, lossy
from tests.broker.cluster.nodes import topic_of
from tests.protocols.http.test_access import filled, routes
from tests.protocols.http.test_two_brokers import serving
from tests.waiting import until

TOPIC = "/topics/public/default/{topic}"
ADMIN, OF_TOPIC = "/admin/v2", "/admin/v2/persistent/public/default/{topic}"
NEW = "/admin/v2/persistent/public/default/{new}"
API = "/api/v1/topics/public/default"
DEFAULT_RIGHTS = f"{ADMIN}/namespaces/public/default/permissions"
GRANT = {"subject": "anna", "action": "describe", "resource": "cluster"}
GRANTED = {"subject": "anna", "action": "create", "resource": "cluster"}
SCHEMA = {"type": "STRING", "schema": "", "properties": {}}
SCHEMAS = f"{ADMIN}/schemas/public/default"
OWN = {"allowedClusters": ["standalone"]}
CHANGES = {
    "append": ("POST", TOPIC, {"messages": [{"value": "x", "partition": 0}]}),
    "import": (
        "POST",
        "/api/v1/topics/public/default/{topic}/messages",
        {"messages": [{"value": "x", "partition": 0}]},
    ),
    "end a group": ("DELETE", "/api/v1/groups/public/default/{topic}/g", None),
    "seek": (
        "POST",
        f"{TOPIC}/subscription/g/cursor",
        {"type": "Seek", "position": "earliest"},
    ),
    "make a subscription": ("PUT", f"{OF_TOPIC}/subscription/new", "latest"),
    "end a subscription": ("DELETE", f"{OF_TOPIC}/subscription/g", None),
    "skip": ("POST", f"{OF_TOPIC}-partition-0/subscription/g/skip_all", None),
    "skip some": ("POST", f"{OF_TOPIC}-partition-0/subscription/g/skip/1", None),
    "expire": ("POST", f"{OF_TOPIC}/subscription/g/expireMessages/0", None),
    "reset to a time": ("POST", f"{OF_TOPIC}/subscription/g/resetcursor/0", None),
    "set positions": (
        "PUT",
        "/api/v1/groups/public/default/{topic}/g/positions",
        {"positions": {"0": 2}},
    ),
    "schema": ("POST", f"{SCHEMAS}/{{topic}}/schema", SCHEMA),
    "schema goes": ("DELETE", f"{SCHEMAS}/{{other}}/schema", None),
    "tenant": ("PUT", f"{ADMIN}/tenants/made", {"adminRoles": ["boss"], **OWN}),
    "tenant changes": ("POST", f"{ADMIN}/tenants/idle", {"adminRoles": ["boss"], **OWN}),
    "tenant goes": ("DELETE", f"{ADMIN}/tenants/idle", None),
    "cluster": ("PUT", f"{ADMIN}/clusters/made", {"serviceUrl": "http://made:8080"}),
    "cluster changes": ("POST", f"{ADMIN}/clusters/idle", {"serviceUrl": "http://made:8080"}),
    "cluster peers": ("POST", f"{ADMIN}/clusters/idle/peers", ["standalone"]),
    "cluster moves": ("POST", f"{ADMIN}/clusters/idle/migrate?migrated=true", {}),
    "cluster goes": ("DELETE", f"{ADMIN}/clusters/idle", None),
    "namespace": ("PUT", f"{ADMIN}/namespaces/public/made", None),
    "namespace goes": ("DELETE", f"{ADMIN}/namespaces/public/empty", None),
    "namespace policy": ("POST", f"{ADMIN}/namespaces/public/default/messageTTL", 7),
    "token": ("PUT", "/api/v1/users/anna/tokens/ci", {}),
    "admin makes": ("PUT", f"{NEW}/partitions", 2),
    "admin grows": ("POST", f"{OF_TOPIC}/partitions", 3),
    "admin deletes": ("DELETE", f"{OF_TOPIC}/partitions", None),
    "topic policy": ("POST", f"{OF_TOPIC}/messageTTL?messageTTL=7", None),
    "terminate": ("POST", f"{OF_TOPIC}/terminate/partitions", None),
    "truncate": ("DELETE", f"{OF_TOPIC}/truncate", None),
    "user": ("PUT", "/api/v1/users/eve", {"password": "secret12"}),
    "user changes": ("PATCH", "/api/v1/users/anna", {"active": False, "roles": ["boss"]}),
    "user goes": ("DELETE", "/api/v1/users/anna", None),
    "token goes": ("DELETE", "/api/v1/users/anna/tokens/old", None),
    "grant": ("POST", "/api/v1/permissions", GRANT),
    "revoke": ("DELETE", f"/api/v1/permissions?{urlencode(GRANTED)}", None),
    "admin grants in a namespace": ("POST", f"{DEFAULT_RIGHTS}/bob", ["consume"]),
    "admin revokes in a namespace": ("DELETE", f"{DEFAULT_RIGHTS}/anna", None),
    "admin grants on a topic": ("POST", f"{OF_TOPIC}/permissions/bob", ["produce"]),
    "admin revokes on a topic": ("DELETE", f"{OF_TOPIC}/permissions/anna", None),
    "make": ("PUT", f"{API}/{{new}}", {"partitions": 2}),
    "grow": ("PATCH", f"{API}/{{topic}}", {"partitions": 3}),
    "delete": ("DELETE", f"{API}/{{topic}}", None),
}
STEPS = {"skip some"}  # A repeat is another step: the request does not carry the wanted state.


class NearHttp:
    """A client of the broker that owns neither the catalogue nor the topic."""

    def __init__(self, client, **topics):
        self._client = client
        self._topics = topics

    @property
    def topic(self):
        return self._topics["topic"]

    async def ask(self, method, path, body=None):
        """Send the request; return the meaning of the client's answer."""
        for called, topic in self._topics.items():
            path = path.replace(f"{{{called}}}", topic)
        body_words = {} if body is None else {"json": body}
        answer = await self._client.request(method, path, **body_words)
        self.text = answer.text
        if answer.is_success:
            return ChangeOutcome.DONE
        return ChangeOutcome.UNKNOWN if answer.status_code == 502 else ChangeOutcome.NOT_DONE


@asynccontextmanager
async def prepared(path):
    """Yield a client, the owner, the owner's state, and the cutter of the link to the owner."""
    async with (
        lossy(path) as (asker, owner, cutter, _),
        serving(asker.broker) as client,
        serving(owner.broker),
    ):
        for node in (asker, owner):  # Pulsar's permissions exist only with access control.
            node.broker.access = Access(Nothing(*Action))
        names = ("topic", "other", "new")
        near = NearHttp(client, **{name: topic_of(owner.held, name).topic for name in names})
        for method, url, body in (
            ("PUT", f"{NEW}/partitions".replace("{new}", "{topic}"), 2),
            ("POST", TOPIC, {"messages": [{"value": n, "partition": 0} for n in range(3)]}),
            ("PUT", f"{OF_TOPIC}/subscription/g", "earliest"),
            (*CHANGES["set positions"][:2], {"positions": {"0": 1}}),
            ("PUT", f"{ADMIN}/namespaces/public/empty", None),
            ("PUT", f"{ADMIN}/tenants/idle", {"adminRoles": [], **OWN}),
            ("PUT", f"{ADMIN}/clusters/idle", {}),
            ("PUT", f"{API}/{{other}}", {}),
            ("POST", f"{SCHEMAS}/{{other}}/schema", SCHEMA),
            ("PUT", "/api/v1/users/anna", {"password": "secret12"}),
            ("PUT", "/api/v1/users/anna/tokens/old", {}),
            ("POST", "/api/v1/permissions", GRANTED),
            ("POST", f"{DEFAULT_RIGHTS}/anna", ["produce"]),
            ("POST", f"{OF_TOPIC}/permissions/anna", ["consume"]),
        ):
            assert await near.ask(method, url, body) is ChangeOutcome.DONE, near.text
        await until(lambda: asker.broker.users.find("anna"))
        yield near, owner, States(owner.broker), cutter


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
async def test_the_answer_after_a_lost_answer_is_true(tmp_path, name):
    async with prepared(tmp_path / "whole") as (near, _, states, _cutter):
        before = states.now()
        assert await near.ask(*CHANGES[name]) is ChangeOutcome.DONE, near.text
        after = states.now()
    async with prepared(tmp_path / "cut") as (near, _, states, cutter):
        assert states.now() == before
        cutter.answers_to_lose = 1
        outcome = await near.ask(*CHANGES[name])
        assert cutter.lost == 1
        check_told(outcome, before, states.now(), after)
        if name in STEPS:
            assert outcome is ChangeOutcome.UNKNOWN
            return
        if outcome is not ChangeOutcome.DONE:
            await near.ask(*CHANGES[name])
        if name in ("append", "import"):  # Without sequence numbers, a record may be stored twice.
            assert [*states.now()] == [*after]
        else:
            assert states.now() == after


@pytest.mark.slow
async def test_no_route_denies_a_change_that_was_made(tmp_path):
    async with prepared(tmp_path) as (near, owner, states, cutter):
        for method, path in list(routes(owner.broker)):
            if method in READING:
                continue
            path = path.replace("{topic}", near.topic).replace("{name}", near.topic)
            before, cutter.answers_to_lose = states.now(), 1
            outcome = await near.ask(method, filled(path), {})
            cutter.answers_to_lose = 0
            if outcome is ChangeOutcome.NOT_DONE:
                assert states.now() == before, (method, path)
