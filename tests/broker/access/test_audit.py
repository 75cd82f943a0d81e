"""The audit log: its events, and a line per minute for repeated events, whatever a client does."""

import json
from dataclasses import replace

import pytest
import trio
import trio.testing

from braidlog.broker.access import audit
from braidlog.broker.access.audit import AuditLimits, AuditLog
from braidlog.broker.access.rights import CLUSTER, Action, Principal, Resource
from braidlog.broker.config.logging import ThrottledLog
from braidlog.storage.metadata.names import TopicName
from tests.waiting import until

ANNA = Principal("anna")
ORDERS_NAME = TopicName("public", "default", "orders")
ORDERS = Resource.of_topic(ORDERS_NAME)


class WrittenAudit:
    """An audit log over a file, with a clock that the test sets."""

    def __init__(self, path, **limits):
        self.path = path
        self.clock_s = 0.0
        self.log = AuditLog(
            path,
            now_us=lambda: 1_700_000_000_123_000,
            clock_s=lambda: self.clock_s,
            seldom=ThrottledLog(),
            limits=AuditLimits(**limits),
        )

    def decided(self, *, resource=ORDERS, allowed=True):
        self.log.decided(ANNA, "kafka 10.0.0.1", Action.PRODUCE, resource, allowed=allowed)

    async def written(self):
        """Return every line, after all events so far are written."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.log.run)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        return self.lines()

    def lines(self):
        """Return every line of the file."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
def audited(tmp_path):
    return WrittenAudit(tmp_path / "audit.jsonl")


@pytest.mark.parametrize("part", ["tenant", "namespace", "topic", "group"])
async def test_remembered_names_have_a_length_limit(audited, part):
    for number in range(3):
        text = "x" * 1_000_000 + str(number)
        named = {part: text.encode() if part == "group" else text}
        audited.decided(resource=replace(Resource.of_group(b"g", ORDERS_NAME), **named))
    (line, repeats) = await audited.written()
    assert repeats["count"] == 2 and len(line["resource"]) < 1000
    assert all(len(str(key)) < 2000 for key in audited.log._repeats)


async def test_a_decision_has_principal_address_action_resource_and_result(audited):
    audited.decided(allowed=False)
    assert await audited.written() == [
        {
            "time": "2023-11-14T22:13:20.123+00:00",
            "event": "access",
            "principal": "anna",
            "protocol": "kafka",
            "host": "10.0.0.1",
            "action": "produce",
            "resource": "topic public/default/orders",
            "allowed": False,
            "count": 1,
        }
    ]


async def test_a_repeated_event_is_logged_once_a_minute_with_its_count(audited):
    for _ in range(1000):
        audited.decided()
    audited.decided(allowed=False)  # Another decision.
    audited.clock_s = audit.REPEAT_S
    audited.decided()
    lines = await audited.written()
    assert [(line["allowed"], line["count"]) for line in lines] == [
        (True, 1),
        (False, 1),
        (True, 1000),
    ]


async def test_the_count_of_an_event_that_stopped_is_written_too(audited, autojump_clock):
    def counts():
        return [line["count"] for line in audited.lines()]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(audited.log.run)
        for _ in range(3):
            audited.decided()
        await until(lambda: counts() == [1], step_s=audit.WRITE_INTERVAL_S)
        audited.clock_s = audit.REPEAT_S
        await until(lambda: counts() == [1, 2], step_s=audit.WRITE_INTERVAL_S)
        # No repeat since: no line, and the audit log forgets the event.
        audited.clock_s = 2 * audit.REPEAT_S
        await trio.sleep(2 * audit.WRITE_INTERVAL_S)
        audited.decided()
        audited.decided()
        await until(lambda: counts() == [1, 2, 1], step_s=audit.WRITE_INTERVAL_S)
        nursery.cancel_scope.cancel()
    assert counts() == [1, 2, 1, 1]  # The remaining counts are written at the end.


async def test_kinds_above_the_limit_keep_their_counts(tmp_path):
    audited = WrittenAudit(tmp_path / "audit.jsonl", remembered=2)
    for name in "aabbc":
        audited.decided(resource=Resource.of_tenant(name))
    lines = [(line["resource"][-1], line["count"]) for line in await audited.written()]
    assert lines == [("a", 1), ("b", 1), ("a", 1), ("b", 1), ("c", 1)]


async def test_many_different_names_cannot_fill_the_disk(audited):
    for number in range(audit.LINES_MAX + 500):
        audited.decided(resource=Resource.of_tenant(str(number)))
    lines = await audited.written()
    assert len(lines) == audit.LINES_MAX + 1
    assert (lines[-1]["event"], lines[-1]["count"]) == ("left_out", 500)


async def test_logins_and_changes_are_logged(audited):
    audited.log.login("bert", "http 10.0.0.2", "password", allowed=False)
    audited.log.changed(ANNA, "http 10.0.0.1", "user_created", "carl")
    login, change = await audited.written()
    assert (login["event"], login["principal"], login["method"]) == ("login", "bert", "password")
    assert not login["allowed"]
    assert (change["event"], change["what"], change["on"]) == ("change", "user_created", "carl")


async def test_a_large_file_is_rotated(tmp_path):
    audited = WrittenAudit(tmp_path / "audit.jsonl", file_bytes=100)
    for number in range(3):
        audited.log.changed(ANNA, "http ::1", "user_created", str(number))
        await audited.written()
    older = audited.path.with_name("audit.jsonl.1").read_text()
    assert '"on":"1"' in older and '"on":"2"' in audited.path.read_text()


async def test_a_moved_file_is_created_again(audited, tmp_path):
    audited.decided()
    await audited.written()
    audited.path.rename(tmp_path / "audit.old")
    audited.log.reopen()
    audited.decided(allowed=False)
    (line,) = await audited.written()
    assert not line["allowed"]


async def test_a_failing_disk_loses_only_lines(tmp_path):
    audited = WrittenAudit(tmp_path / "missing" / "audit.jsonl")
    audited.decided()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(audited.log.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert not audited.path.exists()


async def test_without_a_file_nothing_is_written():
    log = AuditLog(None, now_us=lambda: 0, clock_s=lambda: 0.0, seldom=ThrottledLog())
    log.decided(ANNA, "kafka ::1", Action.PRODUCE, CLUSTER, allowed=True)
    log.login("anna", "kafka ::1", "token", allowed=True)
    log.changed(ANNA, "kafka ::1", "user_created", "x")
    await log.run()
