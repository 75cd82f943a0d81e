from types import SimpleNamespace

import pytest
import structlog
import trio
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from braidlog.broker.errors import TopicNotFound
from braidlog.protocols.http import requests
from braidlog.protocols.http.requests import ERROR_HANDLERS, Requests
from braidlog.protocols.http.routes import Endpoint, Routes
from braidlog.protocols.http.routing import Answering
from tests.protocols.http.asgi import bare_broker, call


async def fine(request):
    return PlainTextResponse(request.path_params.get("name", ""))


async def no_topic(_):
    raise TopicNotFound("no topic x")


async def bug(_):
    raise RuntimeError("a bug")


ROUTES = [
    Route("/fine/{name}", fine),
    Route("/no-topic", no_topic),
    Route("/bug", bug),
]


@pytest.fixture
def broker():
    return bare_broker()


@pytest.fixture
def app(broker):
    return Requests(Starlette(routes=ROUTES, exception_handlers=ERROR_HANDLERS), broker)


@pytest.fixture
def logged():
    with structlog.testing.capture_logs() as lines:
        yield lines


def counted(broker, family: str, *labels: str) -> int:
    return broker.metrics.number(family, *labels).value


async def test_paths_are_matched_as_sent(app):
    assert (await call(app, "GET", "/fine/a%2Fb")).body == b"a%2Fb"


async def test_a_request_id_is_echoed(app):
    answer = await call(app, "GET", "/fine/x", headers={"X-Request-Id": "abc-1"})
    assert answer.headers["x-request-id"] == "abc-1"


@pytest.mark.parametrize("sent_id", [None, "", "a b", "x" * 129])
async def test_a_missing_or_invalid_request_id_is_generated(app, sent_id):
    headers = {} if sent_id is None else {"X-Request-Id": sent_id}
    answered_id = (await call(app, "GET", "/fine/x", headers=headers)).headers["x-request-id"]
    assert len(answered_id) == 32
    assert answered_id != sent_id


async def test_a_broker_error_is_returned_and_counted_by_its_code(app, broker):
    answer = await call(app, "GET", "/no-topic")
    assert answer.status == 404
    assert answer.json == {
        "error_code": 40401,
        "reason": "no topic x",
        "code": "topic_not_found",
        "message": "no topic x",
    }
    assert counted(broker, "braidlog_errors", "http", "topic_not_found") == 1
    assert counted(broker, "braidlog_requests", "http", "GET /no-topic") == 1


async def test_an_unknown_path_has_the_common_error_form(app, broker):
    answer = await call(app, "GET", "/nothing")
    assert (answer.status, answer.json["code"]) == (404, "no_such_path")
    assert counted(broker, "braidlog_requests", "http", "none") == 1


async def test_a_wrong_method_gets_the_allowed_methods(app):
    answer = await call(app, "DELETE", "/fine/x")
    assert (answer.status, answer.json["code"]) == (405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


async def test_a_bug_is_answered_and_logged_under_the_same_id(app, logged):
    answer = await call(app, "GET", "/bug", headers={"X-Request-Id": "r1"})
    assert (answer.status, answer.json["code"]) == (500, "internal_error")
    assert "a bug" not in answer.json["message"]
    assert "r1" in answer.json["message"]
    failed = [line for line in logged if line["event"] == "request_failed"]
    assert [line["request_id"] for line in failed] == ["r1"]


async def test_changes_are_logged_at_info_and_reads_at_debug(app, logged):
    await call(app, "GET", "/fine/x")
    await call(app, "DELETE", "/fine/x")
    served = [line for line in logged if line["event"] == "request_served"]
    assert [(line["log_level"], line["api"]) for line in served] == [
        ("debug", "GET /fine/{name}"),
        ("info", "DELETE /fine/{name}"),
    ]


async def test_frequent_requests_are_logged_only_on_failure(broker, logged):
    async def produce(request):
        if request.query_params:
            raise TopicNotFound("no topic x")
        return PlainTextResponse("")

    route = Routes(broker).route("/produce", POST=Endpoint(produce, None, frequent=True))
    app = Requests(Answering([route], ERROR_HANDLERS), broker)
    await call(app, "POST", "/produce")
    await call(app, "POST", "/produce?fails")
    served = [line for line in logged if line["event"] == "request_served"]
    assert [(line["log_level"], line["status"]) for line in served] == [
        ("debug", 200),
        ("info", 404),
    ]


async def test_a_request_above_the_limit_gets_a_retry_time(broker, nursery):
    release = trio.Event()

    async def hold(_):
        await release.wait()
        return PlainTextResponse("")

    app = Requests(Starlette(routes=[Route("/hold", hold)]), broker)
    for _ in range(requests.REQUESTS_MAX):
        nursery.start_soon(call, app, "GET", "/hold")
    await trio.testing.wait_all_tasks_blocked()
    answer = await call(app, "GET", "/hold")
    assert (answer.status, answer.json["code"]) == (429, "limit_exceeded")
    assert answer.headers["retry-after"] == "1"
    release.set()
    await trio.testing.wait_all_tasks_blocked()
    assert (await call(app, "GET", "/hold")).status == 200


async def test_an_answered_request_does_not_count_as_running(broker, monkeypatch):
    worked_on = []

    async def give_way():
        worked_on.append(app.working)

    monkeypatch.setattr(broker, "poller", SimpleNamespace(give_way=give_way))

    async def fine(_):
        return PlainTextResponse("")

    app = Requests(Starlette(routes=[Route("/fine", fine)]), broker)
    assert (await call(app, "GET", "/fine")).status == 200
    assert worked_on == [1, 1, 0]


async def test_an_invented_method_creates_no_metric_label(app, broker):
    await call(app, "GAT", "/fine/x")
    assert counted(broker, "braidlog_requests", "http", "other /fine/{name}") == 1
