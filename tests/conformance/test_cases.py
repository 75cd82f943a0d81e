"""Every conformance case whose clients are in the project's environment, against a
shared broker.
"""

import pytest

from conformance.clients import iggy_programs
from conformance.clients.driver_processes import Drivers
from conformance.clients.libraries import CLIENTS, RAW
from conformance.runner import FAIL, SKIPPED, case_name, cells, find_cases, run_one
from conformance.server import RunningBroker

pytestmark = [pytest.mark.slow, pytest.mark.clients]


def in_this_environment():
    for module, names in cells(find_cases([])):
        if all(is_here(name) for name in names) and is_quick(module, names):
            yield pytest.param(module, names, id=f"{case_name(module)}[{'>'.join(names)}]")


def is_here(name):
    """Return True for a client in the project's environment, without a program to build."""
    return name == RAW or (name in CLIENTS and CLIENTS[name].environment is None)


def is_quick(module, names):
    """Return True for a quick cell: of the 24 group orders with a coordinator, an order per place
    of the coordinated client.
    """
    if case_name(module) != "group_hand_over" or "kafka-python-today" not in names:
        return True
    return [name for name in names if name != "kafka-python-today"] == list(module.OTHERS)


@pytest.fixture(scope="module")
def running_broker():
    with RunningBroker(settings=iggy_programs.SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def drivers():
    with Drivers() as opened:
        yield opened


@pytest.mark.parametrize(("module", "names"), list(in_this_environment()))
def test_case(running_broker, drivers, module, names):
    outcome = run_one(module, names, running_broker.addresses, drivers)
    if outcome.result == SKIPPED:
        pytest.skip(outcome.reason)
    assert outcome.result != FAIL, outcome.reason + "\n" + running_broker.log_tail()
