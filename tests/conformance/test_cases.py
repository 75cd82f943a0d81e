"""Every conformance case whose clients are in the project's environment, against one broker."""

import pytest

from conformance.clients import CLIENTS
from conformance.runner import FAIL, SKIPPED, case_name, cells, find_cases, run_one
from conformance.server import RunningBroker

pytestmark = [pytest.mark.slow, pytest.mark.clients]


def in_this_environment():
    for module, names in cells(find_cases([])):
        if not any(name in CLIENTS and CLIENTS[name].environment for name in names):
            yield pytest.param(module, names, id=f"{case_name(module)}[{'>'.join(names)}]")


@pytest.fixture(scope="module")
def running_broker():
    with RunningBroker() as broker:
        yield broker


@pytest.mark.parametrize(("module", "names"), list(in_this_environment()))
def test_case(running_broker, module, names):
    outcome = run_one(module, names, running_broker.addresses)
    if outcome.result == SKIPPED:
        pytest.skip(outcome.reason)
    assert outcome.result != FAIL, outcome.reason + "\n" + running_broker.log_tail()
