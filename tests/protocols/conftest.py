"""For whom topics are made; and the assertions of the contract kit explain themselves, as those of
test files do.
"""

import pytest

from braidlog.broker.access.acting import asks

pytest.register_assert_rewrite("tests.protocols.contract")


@pytest.fixture
def makers(broker, monkeypatch):
    """For whom topics are made, as another broker would be told: names and origins."""
    create, found = broker.topics.create, []

    async def make(*args, **kwargs):
        principal, at = asks()
        found.append((principal.name, at))
        return await create(*args, **kwargs)

    monkeypatch.setattr(broker.topics, "create", make)
    return found
