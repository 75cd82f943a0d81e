"""The liveness rule of fault runs: after a fault every client must make progress."""

import pytest

from conformance.cluster.causes import CAUSES, GENTLE, SHORT
from conformance.cluster.faults import MORE, SETTLES_S, FaultsRun, settled
from conformance.cluster.running import Lost


class Addresses:
    """Stands for a cluster without brokers."""

    brokers = ()

    def addresses(self, protocol):
        return []

    def keep_running(self):
        pass

    def tails(self):
        return ""


@pytest.fixture
def run():
    return FaultsRun(Addresses(), topics=2, seed=1)


def go_on(run, kinds):
    """Let clients make their steps; readers of whole topics receive the newest values."""
    for topic in run.book.topics:
        run.book.stored(topic, run.book.sending(topic, "iggy.1", [b"newest"]), [None])
    for client in run.clients:
        if client.kind in kinds:
            for topic in client.whole_topics:
                run.book.reads(client.kind, topic, "g", [b"newest"])
            for _ in range(MORE):
                run.book.goes_on(client.kind)


def test_every_client_must_recover_within_its_own_limit(run):
    kinds = {client.kind for client in run.clients}
    assert {"kafka", "librdkafka-reader", "resizer", "http-holder", "kafka-from-start"} <= kinds
    before = run.book.watch()
    waiting = run._waiting(before)
    assert waiting.keys() == kinds
    assert all(limit_s > SETTLES_S for limit_s in waiting.values())
    go_on(run, kinds - {"resizer"})
    assert run._waiting(before).keys() == {"resizer"}
    go_on(run, {"resizer"})
    assert run._waiting(before) == {}


def test_a_group_that_no_longer_reads_a_topic_has_not_recovered(run):
    before = run.book.watch()
    go_on(run, {client.kind for client in run.clients})
    run.book.received["librdkafka-reader"]["t1"].clear()
    assert run._waiting(before).keys() == {"librdkafka-reader in t1"}


def test_a_client_without_progress_for_too_long_is_a_broken_promise(run):
    run.settles_s = -1000
    with pytest.raises(Lost, match="resizer"):
        run._await_more("a test")


def test_the_short_run_drains_a_broker_and_expects_none_to_end():
    assert set(GENTLE) <= set(SHORT) <= set(CAUSES)


def test_the_report_has_the_standstill_times_of_clients():
    assert settled([]) == "(no fault)"
    assert settled([1, 2, 9]) == "after 2.0 s (p50), 9.0 s at most"
