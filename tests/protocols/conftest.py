"""A fixture for the clients of topic creations; and readable assertions of the contract kit."""

import pytest

from braidlog.broker.access.acting import asks

pytest.register_assert_rewrite("tests.protocols.contract")


@pytest.fixture
def makers(broker, monkeypatch):
    """Return a list of the clients of topic creations, as another broker would see them: names and
    origins.
    """
    create, calls = broker.topics.create, []

    async def make(*args, **kwargs):
        principal, at = asks()
        calls.append((principal.name, at))
        return await create(*args, **kwargs)

    monkeypatch.setattr(broker.topics, "create", make)
    return calls
