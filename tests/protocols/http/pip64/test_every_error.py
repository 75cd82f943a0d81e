"""PIP-64's error list with the additions: a request for each number."""

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from braidlog.protocols.http.requests import ERROR_HANDLERS, Requests
from tests.protocols.http.asgi import call
from tests.protocols.http.pip64.conftest import BASE, SUBSCRIPTION

MESSAGES = f"{BASE}/partitions/0/messages"
NONE = "/topics/public/default/none"
ONE = {"messages": [{"value": "x"}]}
TEXT = {"Content-Type": "text/plain"}
TOO_LARGE = {"Content-Length": str(64 * 1024 * 1024)}

# number, method, path, body, headers
REQUESTS = [
    (40001, "POST", BASE, [], {}),
    (40002, "GET", f"{MESSAGES}?position=earliest&timestamp=1", None, {}),
    (40002, "GET", f"{MESSAGES}?max_messages=-1", None, {}),
    (40003, "GET", f"{MESSAGES}?message_id=%25%25", None, {}),
    (40400, "GET", "/topics/public/default", None, {}),
    (40401, "POST", NONE, ONE, {}),
    (40401, "GET", f"{NONE}/partitions/0/messages", None, {}),
    (40401, "POST", f"{NONE}/subscription/s", {}, {}),
    (40401, "GET", "/topics/non-persistent/public/default/orders", None, {}),
    (40402, "POST", f"{BASE}/partitions/2", ONE, {}),
    (40402, "GET", f"{BASE}/partitions/7/messages", None, {}),
    (40403, "GET", f"{SUBSCRIPTION}/consumer/none/messages", None, {}),
    (40403, "DELETE", f"{SUBSCRIPTION}/consumers/none", None, {}),
    (40404, "GET", f"{BASE}/subscription/none/cursor", None, {}),
    (40404, "POST", f"{BASE}/subscription/none/cursor", {"type": "Individual"}, {}),
    (40500, "PUT", BASE, ONE, {}),
    (40601, "GET", MESSAGES, None, {"Accept": "image/png"}),
    (40902, "POST", SUBSCRIPTION, {"name": "w1"}, {}),
    (40903, "POST", SUBSCRIPTION, {"name": "w2", "subscription_type": "Exclusive"}, {}),
    (41201, "POST", "/topics/public/default/orders-partition-1", ONE, {}),
    (41201, "POST", "/topics/public/default/a%20b%2Fc", ONE, {}),
    (41201, "POST", f"{BASE}/subscription/a%2Fb", {}, {}),
    (41301, "POST", BASE, ONE, TOO_LARGE),
    (41501, "POST", BASE, ONE, TEXT),
    (41501, "POST", BASE, ONE, {"Content-Encoding": "gzip"}),
    (41601, "GET", f"{MESSAGES}?position=99", None, {}),
    (42201, "POST", BASE, {"schema_type": "KEY_VALUE", **ONE}, {}),
    (42202, "POST", BASE, {"schema_type": "AVRO", **ONE}, {}),
    (42203, "POST", BASE, {"key_schema": "{", "value_schema": {"type": "STRING"}, **ONE}, {}),
    (42204, "POST", BASE, {"schema_version": 9, **ONE}, {}),
    (42205, "POST", BASE, {"messages": []}, {}),
    (42205, "POST", f"{SUBSCRIPTION}/cursor", {"type": "Individual", "messageIds": ["?"]}, {}),
    (42206, "POST", f"{SUBSCRIPTION}/cursor", {"type": "Perhaps", "messageIds": []}, {}),
]
ELSEWHERE = {40101, 40301, 42901, 50001, 50301}  # See below.
OF_THE_SPECIFICATION = {
    *(40001, 40002, 40003, 40101, 40301, 40400, 40401, 40402, 40403, 40404, 40500, 40601),
    *(40902, 40903, 41201, 41301, 41501, 41601),
    *(42201, 42202, 42203, 42204, 42205, 42206, 42901, 50001, 50301),
}


def test_every_number_has_a_test():
    assert {number for number, *_ in REQUESTS} | ELSEWHERE == OF_THE_SPECIFICATION


def check(answer, number):
    """Check the status, the common form of errors, and the retry time."""
    assert answer.json["error_code"] == number, answer.body
    assert answer.status == number // 100
    assert answer.json["message"] == answer.json["reason"] != ""
    assert ("retry-after" in answer.headers) == (answer.status in (429, 503))
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize(("number", "method", "path", "body", "headers"), REQUESTS)
async def test_each_number_is_the_answer_to_a_request(
    orders, ask, number, method, path, body, headers
):
    assert (await ask("POST", SUBSCRIPTION, {"name": "w1"})).status == 201
    check(await ask(method, path, body, headers=headers), number)
    assert sum(partition.next_offset for partition in orders.partitions) == 0


@pytest.mark.parametrize("app", [{"consumers_max": 1}], indirect=True, ids=[""])
async def test_an_exceeded_quota_is_429(orders, ask):
    assert (await ask("POST", SUBSCRIPTION, {"name": "w1"})).status == 201
    check(await ask("POST", SUBSCRIPTION, {"name": "w2"}), 42901)


@pytest.mark.parametrize(
    "broker", [{"access.required": "true", "access.superusers": "root"}], indirect=True, ids=[""]
)
async def test_an_unknown_client_gets_401_and_a_forbidden_client_403(broker, orders, ask):
    check(await ask("POST", BASE, ONE), 40101)
    anna, _ = await broker.users.create("anna", "secret")
    token, _ = await broker.users.create_token(anna, "ci", None)
    bearer = {"Authorization": f"Bearer {token}"}
    for method, path, body in (
        ("POST", BASE, ONE),
        ("GET", MESSAGES, None),
        ("POST", SUBSCRIPTION, {}),
        ("GET", f"{SUBSCRIPTION}/cursor", None),
    ):
        check(await ask(method, path, body, headers=bearer), 40301)


async def test_a_stopping_broker_answers_503(broker, orders, ask):
    broker.stopping.set()
    check(await ask("POST", BASE, ONE), 50301)


async def test_a_bug_is_500(broker):
    async def bug(_):
        raise RuntimeError("a bug")

    app = Starlette(routes=[Route("/", bug)], exception_handlers=ERROR_HANDLERS)
    check(await call(Requests(app, broker), "GET", "/"), 50001)
