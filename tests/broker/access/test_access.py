import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import ANONYMOUS, CLUSTER, Action, Principal, Resource
from braidlog.broker.errors import NotAuthorized
from braidlog.storage.metadata.names import TopicName
from tests.broker.access.rules import Nothing

ORDERS = TopicName("public", "default", "orders")


@pytest.mark.parametrize("action", Action)
def test_without_rules_everything_is_allowed(action):
    Access().check(ANONYMOUS, action, CLUSTER)
    assert Access().allows(ANONYMOUS, action, CLUSTER)


def test_rules_receive_principal_action_and_resource():
    rules = Nothing(Action.CONSUME)
    access = Access(rules)
    alice = Principal("alice", frozenset({"readers"}))
    access.check(alice, Action.CONSUME, Resource.of_topic(ORDERS))
    with pytest.raises(NotAuthorized, match="alice may not produce topic public/default/orders"):
        access.check(alice, Action.PRODUCE, Resource.of_topic(ORDERS))
    assert rules.asked[0] == (alice, Action.CONSUME, Resource.of_topic(ORDERS))


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        (CLUSTER, "cluster"),
        (Resource.of_tenant("t"), "tenant t"),
        (Resource.of_namespace("t", "n"), "namespace t/n"),
        (Resource.of_topic(ORDERS), "topic public/default/orders"),
        (Resource.of_group_within(b"g", "t", "n"), "group 'g' t/n"),
        (Resource.of_group(b"\xff", ORDERS), r"group '\\xff' public/default/orders"),
    ],
)
def test_resources_have_readable_names(resource, text):
    assert str(resource) == text
