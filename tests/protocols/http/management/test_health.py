import re

import pytest
import trio

from braidlog.protocols.http.app import make_app
from braidlog.protocols.http.management.health import INLINE_MAX
from braidlog.protocols.http.options import RestOptions
from tests.protocols.http.asgi import bare_broker, call


@pytest.fixture
def broker(tmp_path):
    broker = bare_broker(str(tmp_path))
    broker.ready.set()
    return broker


def app_of(broker, **options):
    return make_app(broker, RestOptions(**options), trio.Event())


async def test_healthz_answers(broker):
    answer = await call(app_of(broker), "GET", "/healthz")
    assert (answer.status, answer.body) == (200, b"ok\n")


async def test_readyz_is_ready_with_every_check(broker):
    answer = await call(app_of(broker), "GET", "/readyz")
    assert answer.status == 200
    checks = dict.fromkeys(("started", "not_stopping", "disk_space", "disk_writable"), True)
    assert answer.json == {"ready": True, "checks": checks}


async def test_readyz_is_not_ready_while_starting(tmp_path):
    answer = await call(app_of(bare_broker(str(tmp_path))), "GET", "/readyz")
    assert answer.status == 503
    assert answer.json["checks"]["started"] is False


async def test_readyz_is_not_ready_while_stopping(broker):
    broker.is_leaving = True
    answer = await call(app_of(broker), "GET", "/readyz")
    assert (answer.status, answer.json["ready"]) == (503, False)


async def test_readyz_is_not_ready_on_a_nearly_full_disk(broker):
    answer = await call(app_of(broker, disk_free_bytes_min=1 << 62), "GET", "/readyz")
    assert answer.status == 503
    assert answer.json["checks"]["disk_space"] is False


async def test_readyz_is_not_ready_without_write_access(broker):
    async def has_room():
        return False

    broker.has_room = has_room
    answer = await call(app_of(broker), "GET", "/readyz")
    assert answer.status == 503
    assert answer.json["checks"]["disk_writable"] is False


async def test_metrics_show_the_counted_values(broker):
    broker.metrics.records_in("kafka", "public/default/orders", 3, 99)
    answer = await call(app_of(broker), "GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    line = 'braidlog_records_in_total{protocol="kafka",topic="public/default/orders"} 3.0'
    assert line in answer.body.decode()


async def test_metrics_have_the_requested_format(broker):
    headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = await call(app_of(broker), "GET", "/metrics", headers=headers)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.body.endswith(b"# EOF\n")


TEXT_0_0_4 = "text/plain; version=0.0.4"
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        (PROMETHEUS_3, True),
        ("application/openmetrics-text", True),
        ('application/openmetrics-text; version="1.0.0"; charset=utf-8', True),
        ("text/plain, application/openmetrics-text", True),
        ("application/openmetrics-text;version=0.0.1", False),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.5", False),
        ("application/openmetrics-text;q=many", False),
        ('text/plain; version="1.0.0"', False),
        ("text/plain; version=1.x", False),
        ("text/plain; version=; q", False),
        ("*/*", False),
        (";=,,;", False),
        ("", False),
    ],
)
async def test_the_content_type_names_the_format_of_the_answer(broker, accept, openmetrics):
    answer = await call(app_of(broker), "GET", "/metrics", headers={"Accept": accept})
    assert answer.status == 200
    kind = "application/openmetrics-text; version=1.0.0" if openmetrics else TEXT_0_0_4
    assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert answer.body.endswith(b"# EOF\n") == openmetrics


async def test_many_series_are_all_rendered(broker):
    count = INLINE_MAX + 1
    for number in range(count):
        broker.metrics.records_in("kafka", f"t{number}", 1, 1)
    text = (await call(app_of(broker), "GET", "/metrics")).body.decode()
    assert len(re.findall(r"^braidlog_records_in_total\{", text, re.MULTILINE)) == count
