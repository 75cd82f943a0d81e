"""Brokers of a group's run: a lost lease is a supervisor's work, every other end is a failure."""

import pytest

from conformance.old.group_brokers import LOST_SESSION, BrokerSupervisor, PromiseBroken

LOST = f"joined\nbraidlog: storage failed, stopped at once: session 3 {LOST_SESSION}"


class EndingBroker:
    """A broker whose process ends on demand."""

    def __init__(self):
        self.code = None
        self.tail = ""
        self.launches = 0

    def end(self, code, tail):
        self.code, self.tail = code, tail

    def is_running(self):
        return self.code is None

    def is_ready(self):
        return self.is_running()

    def wait(self):
        return self.code

    def launch(self):
        self.code = None
        self.launches += 1

    def log_tail(self):
        return self.tail


@pytest.fixture
def brokers():
    return [EndingBroker(), EndingBroker()]


@pytest.fixture
def supervisor(brokers):
    return BrokerSupervisor(brokers)


def test_a_broker_that_lost_its_lease_is_started_again(brokers, supervisor):
    brokers[1].end(1, LOST)
    supervisor.look()
    supervisor.await_ready()
    assert [broker.launches for broker in brokers] == [0, 1]
    assert supervisor.restarts == 1


@pytest.mark.parametrize(
    ("code", "tail"),
    [(-9, LOST), (1, "braidlog: storage failed: disk"), (0, "stopped"), (1, f"{LOST}\nlater")],
)
def test_every_other_end_of_a_broker_is_a_failure(brokers, supervisor, code, tail):
    brokers[0].end(code, tail)
    supervisor.look()
    supervisor.look()
    assert brokers[0].launches == 0
    with pytest.raises(PromiseBroken, match=f"broker 1 ended with code {code}"):
        supervisor.await_ready()


def test_a_broker_that_the_run_killed_stays_down_until_the_run_starts_the_broker(
    brokers, supervisor
):
    supervisor.keep_down(brokers[0])
    brokers[0].end(-9, "killed")
    supervisor.look()
    supervisor.check()
    assert not brokers[0].is_running()
    supervisor.launch(brokers[0])
    supervisor.await_ready()
    brokers[0].end(1, LOST)
    supervisor.look()
    assert (brokers[0].launches, supervisor.restarts) == (2, 1)
