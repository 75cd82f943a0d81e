"""Every conformance case whose clients are in the project's environment, against one broker."""

import pytest

from conformance.clients import CLIENTS
from conformance.runner import FAIL, SKIPPED, find_cases, run_one
from conformance.server import RunningBroker

pytestmark = [pytest.mark.slow, pytest.mark.clients]


def cells():
    for module in find_cases([]):
        for clients in module.CLIENTS:
            names = (clients,) if isinstance(clients, str) else tuple(clients)
            if not any(name in CLIENTS and CLIENTS[name].environment for name in names):
                case = module.__name__.rpartition(".")[2]
                yield pytest.param(module, names, id=f"{case}[{'>'.join(names)}]")


@pytest.fixture(scope="module")
def running_broker():
    with RunningBroker() as broker:
        yield broker


@pytest.mark.parametrize(("module", "names"), list(cells()))
def test_case(running_broker, module, names):
    outcome = run_one(module, names, running_broker.addresses)
    if outcome.result == SKIPPED:
        pytest.skip(outcome.reason)
    assert outcome.result != FAIL, outcome.reason + "\n" + running_broker.log_tail()
