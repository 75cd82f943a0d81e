"""The topics and groups commands against a server with the answers of docs/api.md."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from braidlog.broker.cli.main import run
from conformance.server import RunningBroker

ORDERS = {
    "name": "public/default/orders",
    "topic_id": 1,
    "created_us": 1_795_228_435_964_000,
    "partitioned": False,
    "durability": "synced",
    "settings": {},
    "in_force": {"durability": "synced", "retention_ms": None},
    "partitions": [
        {
            "partition": 0,
            "partition_id": 7,
            "log_start_offset": 2,
            "high_watermark": 5,
            "log_end_offset": 5,
            "size_bytes": 312,
            "compacted_offset": 0,
            "segments": [{"base_offset": 0, "size_bytes": 312, "last_modified_us": 1}],
        }
    ],
    "groups": [],
}
IN_FORCE = {
    "durability": "written",
    "retention_ms": None,
    "segment_ms": 604_800_000,
    "retention_hold": None,
    "keep_unacknowledged": False,
}
BINARY_GROUP = "/wA="  # base64 of b"\xff\x00"


class FakeBroker(ThreadingHTTPServer):
    """Returns prepared answers, by method and path, and records the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), FakeHandler)
        self.answers: dict[tuple[str, str], tuple[int, object]] = {}
        self.asked: list[tuple[str, str, dict[str, list[str]], object]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class FakeHandler(BaseHTTPRequestHandler):
    server: FakeBroker

    def answer(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        sent_body = json.loads(body) if body else None
        self.server.asked.append((self.command, parts.path, parse_qs(parts.query), sent_body))
        after = parse_qs(parts.query).get("after", [""])[0]
        key = (self.command, parts.path + (f"?after={after}" if after else ""))
        missing = 404, {"error_code": 40401, "code": "topic_not_found", "message": "no topic that"}
        status, answer = self.server.answers.get(key, missing)
        self.send_response(status)
        self.end_headers()
        if status != 204:
            self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def log_message(self, *_: object) -> None:
        """Log nothing: the tests read `asked`."""


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def group(name: str, encoding: str = "utf8", topic: str = "public/default/orders") -> dict:
    place = {"topic": topic, "group": name, "encoding": encoding, "partitions": 1, "backlog": 4}
    return {**place, "type": "classic", "protocol_type": "", "state": "Stable", "members": 1}


def group_page(*groups: dict, silent: tuple[int, ...] = ()) -> dict:
    return {"groups": groups, "next": None, "silent_brokers": silent}


def test_list_prints_a_json_array_of_all_pages(fake, capsys):
    first = {"name": "public/default/a", "partitions": 1, "records": 0, "size_bytes": 0}
    two = {**first, "name": "public/default/b"}
    path = "/api/v1/topics"
    fake.answers["GET", path] = 200, {"topics": [first], "next": "public/default/a"}
    fake.answers["GET", f"{path}?after=public/default/a"] = 200, {"topics": [two], "next": None}
    assert run(["topics", "list", "--url", fake.url, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [first, two]


def test_list_draws_a_table_by_default_and_keeps_long_names_whole(fake, capsys):
    name = "public/default/" + "x" * 300
    topic = {"name": name, "partitions": 3, "records": 41, "size_bytes": 9, "durability": "synced"}
    fake.answers["GET", "/api/v1/topics"] = 200, {"topics": [topic], "next": None}
    assert run(["topics", "list", "--url", fake.url]) == 0
    out = capsys.readouterr().out
    assert out.count("x") == 300
    assert "41" in out


def test_url_comes_from_the_environment(fake, capsys, monkeypatch):
    monkeypatch.setenv("BRAIDLOG_URL", fake.url)
    fake.answers["GET", "/api/v1/groups"] = 200, group_page()
    assert run(["groups", "list", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("typed", "path"),
    [
        ("orders", "public/default/orders"),
        ("public/my ns/orders", "public/my%20ns/orders"),
        ("persistent://t/n/ö", "t/n/%C3%B6"),
        ("persistent://orders", "public/default/orders"),
    ],
)
def test_show_finds_a_topic_by_each_form_of_its_name(fake, capsys, typed, path):
    fake.answers["GET", f"/api/v1/topics/{path}"] = 200, ORDERS
    assert run(["topics", "show", typed, "--url", fake.url, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == ORDERS


def test_show_draws_offsets_and_settings(fake, capsys):
    settings = {"settings": {"durability": "written"}, "in_force": IN_FORCE}
    shown = {**ORDERS, **settings, "groups": [group("billing")]}
    fake.answers["GET", "/api/v1/topics/public/default/orders"] = 200, shown
    assert run(["topics", "show", "orders", "--url", fake.url]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    assert ["durability", "written", "topic"] in rows
    assert ["retention_ms", "no", "limit", "broker"] in rows
    assert ["segment_ms", "604800000", "broker"] in rows
    assert ["retention_hold", "none", "broker"] in rows
    assert ["keep_unacknowledged", "false", "broker"] in rows
    assert "billing" in out
    assert "312" in out


def test_create_sends_partitions_and_typed_settings(fake, capsys):
    path = "/api/v1/topics/public/default/orders"
    fake.answers["PUT", path] = 201, ORDERS
    command = ["topics", "create", "orders", "--partitions", "3", "--url", fake.url]
    options = ["--set", "durability=written", "--set", "segment_bytes=65536"]
    assert run([*command, *options, "--output", "json"]) == 0
    settings = {"durability": "written", "segment_bytes": 65536}
    assert fake.asked == [("PUT", path, {}, {"partitions": 3, "settings": settings})]


def test_create_of_an_existing_topic_fails_with_the_brokers_message(fake, capsys):
    problem = {
        "error_code": 40901,
        "code": "topic_exists",
        "message": "topic orders already exists",
    }
    fake.answers["PUT", "/api/v1/topics/public/default/orders"] = 409, problem
    assert run(["topics", "create", "orders", "--url", fake.url]) == 1
    assert capsys.readouterr().err == "braidlog: topic orders already exists\n"


def test_alter_sends_set_values_and_null_for_reset_values(fake, capsys):
    path = "/api/v1/topics/public/default/orders"
    fake.answers["PATCH", path] = 200, ORDERS
    options = ["--set", "retention_bytes=1GiB", "--set", "retention_ms=-1", "--set"]
    options += ["keep_unacknowledged=true", "--unset", "durability", "--partitions", "2"]
    assert run(["topics", "alter", "orders", *options, "--url", fake.url]) == 0
    settings = {"retention_bytes": "1GiB", "retention_ms": -1, "keep_unacknowledged": True}
    body = {"settings": {**settings, "durability": None}, "partitions": 2}
    assert fake.asked == [("PATCH", path, {}, body)]
    assert "retention_ms" in capsys.readouterr().out


def test_alter_without_a_change_sends_no_request(fake, capsys):
    assert run(["topics", "alter", "orders", "--url", fake.url]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert fake.asked == []


def test_delete_reports_on_standard_error_only(fake, capsys):
    fake.answers["DELETE", "/api/v1/topics/public/default/orders"] = 204, None
    assert run(["topics", "delete", "orders", "--yes", "--url", fake.url]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "deleted orders" in captured.err


def test_groups_show_requests_a_binary_name_as_listed(fake, capsys):
    listed = group(BINARY_GROUP, "base64")
    detail = {**listed, "partitions": [], "backlog": 0, "members": []}
    path = "/api/v1/groups/public/default/orders/" + "%2FwA%3D"
    fake.answers["GET", "/api/v1/groups"] = 200, group_page(listed)
    fake.answers["GET", path] = 200, detail
    command = ["groups", "show", BINARY_GROUP, "--encoding", "base64", "--url", fake.url]
    assert run([*command, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [detail]
    assert fake.asked[0][2] == {"group": [BINARY_GROUP], "encoding": ["base64"]}
    assert fake.asked[1][2] == {"encoding": ["base64"]}
    assert unquote(path).endswith(BINARY_GROUP)


def test_groups_show_draws_positions_and_ranges(fake, capsys):
    partition = {
        "partition": 0,
        "position": None,
        "acknowledged": [[2, 2], [7, 9]],
        "acknowledged_ranges": 5,
        "backlog": 44,
        "log_start_offset": 0,
        "high_watermark": 50,
    }
    member = {"protocol": "kafka", "name": "k-1", "address": "127.0.0.1:9", "partitions": [0, 1]}
    listed = group("billing")
    fake.answers["GET", "/api/v1/groups"] = 200, group_page(listed)
    fake.answers["GET", "/api/v1/groups/public/default/orders/billing"] = (
        200,
        {**listed, "partitions": [partition], "members": [member]},
    )
    assert run(["groups", "show", "billing", "--url", fake.url]) == 0
    shown = capsys.readouterr().out
    assert "2-2, 7-9, and 3 more" in shown
    assert all(word in shown for word in ("kafka", "k-1", "127.0.0.1:9", "0, 1"))


def test_groups_list_has_members_states_and_silent_brokers(fake, capsys):
    unread = {**group("new"), "backlog": None, "members": 3}
    worker = {**group("connect"), "topic": None, "backlog": None}
    fake.answers["GET", "/api/v1/groups"] = 200, group_page(worker, unread, silent=(3,))
    assert run(["groups", "list", "--url", fake.url]) == 0
    shown = capsys.readouterr()
    rows = [line.split() for line in shown.out.splitlines()]
    assert rows[1][:5] == ["-", "connect", "classic", "Stable", "1"]
    assert rows[2] == ["public/default/orders", "new", "classic", "Stable", "3", "1", "-"]
    text = "broker 3 does not answer: members that it coordinates are missing"
    assert shown.err == f"braidlog: {text}\n"


def test_a_group_without_a_topic_shows_its_clients_and_cannot_be_deleted(fake, capsys):
    worker = {**group("connect"), "topic": None, "clients": [{"name": "w-1", "address": "/::1"}]}
    fake.answers["GET", "/api/v1/groups"] = 200, group_page(worker)
    assert run(["groups", "show", "connect", "--url", fake.url]) == 0
    shown = capsys.readouterr().out
    assert "connect on no topic (classic Stable)" in shown and "w-1" in shown
    assert run(["groups", "delete", "connect", "--yes", "--url", fake.url]) == 4


def test_groups_show_of_a_missing_group_ends_with_4(fake, capsys):
    fake.answers["GET", "/api/v1/groups"] = 200, group_page()
    assert run(["groups", "show", "nobody", "--url", fake.url]) == 4
    assert capsys.readouterr().err == "braidlog: no group 'nobody' has a position or members\n"


def test_a_missing_topic_ends_with_4(fake):
    assert run(["topics", "show", "nothing", "--url", fake.url]) == 4


def test_a_name_that_the_broker_refuses_ends_with_2(fake):
    problem = {"error_code": 41201, "code": "invalid_name", "message": "no"}
    fake.answers["GET", "/api/v1/topics/public/default/x-partition-1"] = 412, problem
    assert run(["topics", "show", "x-partition-1", "--url", fake.url]) == 2


@pytest.mark.parametrize(
    ("flags", "status"), [(["--partitions", "0"], 400), (["--set", "nope=1"], 422)]
)
def test_a_number_or_setting_that_the_broker_refuses_ends_with_2(fake, capsys, flags, status):
    problem = {"error_code": status * 100, "code": "refused", "message": "that cannot be"}
    fake.answers["PUT", "/api/v1/topics/public/default/orders"] = status, problem
    assert run(["topics", "create", "orders", *flags, "--url", fake.url]) == 2
    assert capsys.readouterr().err == "braidlog: that cannot be\n"


def test_an_unreachable_broker_ends_with_3(fake, capsys):
    fake.server_close()
    assert run(["topics", "list", "--url", fake.url]) == 3
    assert capsys.readouterr().err.startswith(f"braidlog: no broker answers at {fake.url}: ")


def test_a_refused_connection_names_the_next_steps(capsys):
    with socket.create_server(("127.0.0.1", 0)) as bound:
        url = "http://{}:{}".format(*bound.getsockname())
    assert run(["topics", "list", "--url", url]) == 3
    error = capsys.readouterr().err
    assert "`braidlog serve` starts a broker, --url names another" in error


def test_another_program_on_that_port_ends_with_1(fake, capsys):
    fake.answers["GET", "/api/v1/topics"] = 200, b"<html>"
    assert run(["topics", "list", "--url", fake.url]) == 1
    assert "is not a Braidlog broker" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list", "--url", "nonsense"],
        ["topics", "list", "--url", "http://h:notaport"],
        ["topics", "show", "a/b"],
        ["topics", "create", "t", "--set", "novalue"],
        ["topics", "list", "--output", "xml"],
        ["topics", "lost"],
    ],
)
def test_invalid_arguments_end_with_2(arguments):
    assert run(arguments) == 2


def test_a_group_whose_name_is_not_utf8_is_shown_as_typed(fake, capsys):
    fake.answers["GET", "/api/v1/groups"] = 200, group_page()
    assert run(["groups", "show", "\udcff\x00", "--url", fake.url]) == 4
    ((_, _, query, _),) = fake.asked
    assert (query["group"], query["encoding"]) == ([BINARY_GROUP], ["base64"])


def test_an_address_that_is_not_utf8_is_a_usage_error(capsys):
    assert run(["topics", "list", "--url", "http://\udcff:1"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "command",
    ["topics list", "topics show", "topics create", "topics delete", "groups list", "groups show"],
)
def test_help_of_each_command_shows_an_example(capsys, command):
    assert run([*command.split(), "--help"]) == 0
    assert f"Example: braidlog {command}" in capsys.readouterr().out


@pytest.mark.slow
def test_commands_and_a_running_broker_understand_each_other(tmp_path, capsys):
    others = dict.fromkeys(("kafka", "pulsar", "iggy"), "off")
    with RunningBroker(tmp_path, listen=others) as broker:
        where = ["--url", broker.url, "--output", "json"]
        assert run(["topics", "create", "orders", "--partitions", "2", *where]) == 0
        created = json.loads(capsys.readouterr().out)
        assert run(["topics", "show", "orders", *where]) == 0
        assert json.loads(capsys.readouterr().out) == created
        assert len(created["partitions"]) == 2
        assert run(["topics", "list", *where]) == 0
        assert [listed["name"] for listed in json.loads(capsys.readouterr().out)] == [
            created["name"]
        ]
        assert run(["topics", "create", "orders", *where]) == 1
        assert run(["groups", "list", *where]) == 0
        assert run(["groups", "show", "nobody", *where]) == 4
        assert run(["topics", "delete", "orders", "--yes", *where]) == 0
        assert run(["topics", "show", "orders", *where]) == 4
        assert run(["topics", "show", "orders-partition-1", *where]) == 2
        assert broker.stop() == 0
    assert run(["topics", "list", *where]) == 3


@pytest.mark.parametrize("url", ["orders", "ftp://h", "http://", "http://[::1", "http://h:99999"])
def test_an_invalid_url_is_a_usage_error(url, capsys):
    assert run(["topics", "list", "--url", url]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"braidlog: invalid broker URL {url!r}, expected http://HOST:PORT"
