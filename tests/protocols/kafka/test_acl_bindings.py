"""Kafka's ACLs as permissions, and permissions as ACLs."""

import pytest

from braidlog.broker.access.rules import Grant
from braidlog.protocols.kafka.acl_bindings import (
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    ANY,
    CLUSTER,
    CREATE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    TOPIC,
    WORDS,
    WRITE,
    Binding,
    bindings_of,
    grant_of,
)

OURS = "public/default"


def acl(kind: int, name: str | None, operation: int, **fields: object) -> Binding:
    about = {"pattern": LITERAL, "principal": "User:anna", "host": "*", "permission": ALLOW}
    return Binding(kind, name, operation=operation, **(about | fields))


@pytest.mark.parametrize(
    ("binding", "grant"),
    [
        (acl(TOPIC, "orders", READ), Grant("anna", "consume", "public/default/orders@")),
        (acl(TOPIC, "*", WRITE), Grant("anna", "produce", "public/default/*@")),
        (
            acl(TOPIC, "ord", ALTER, pattern=PREFIXED),
            Grant("anna", "alter", "public/default/ord*@"),
        ),
        (acl(GROUP, "billing", READ), Grant("anna", "consume", "public/default/@billing")),
        (
            acl(GROUP, "b", READ, pattern=PREFIXED, principal="Role:ops"),
            Grant("role:ops", "consume", "public/default/@b*"),
        ),
        (acl(CLUSTER, "kafka-cluster", CREATE), Grant("anna", "create", "public/default")),
        (acl(CLUSTER, "kafka-cluster", ALTER), Grant("anna", "administer", "cluster")),
        (acl(CLUSTER, "kafka-cluster", DESCRIBE), Grant("anna", "describe", "cluster/server")),
    ],
)
def test_an_acl_is_a_permission(binding: Binding, grant: Grant) -> None:
    assert grant_of(binding, OURS) == grant


@pytest.mark.parametrize("kind", WORDS)
def test_every_acl_that_is_accepted_is_shown_again(kind: int) -> None:
    name = "kafka-cluster" if kind == CLUSTER else "orders"
    for operation in WORDS[kind]:
        binding = acl(kind, name, operation)
        assert binding in list(bindings_of(grant_of(binding, OURS), OURS))


@pytest.mark.parametrize(
    ("binding", "reason"),
    [
        (acl(TOPIC, "orders", READ, permission=2), "only allow"),
        (acl(TOPIC, "orders", READ, host="10.0.0.1"), "host"),
        (acl(TOPIC, "orders", READ, principal="User:*"), "principal"),
        (acl(TOPIC, "orders", READ, principal="anna"), "principal"),
        (acl(TOPIC, "orders", READ, principal="User:role:x"), "Role"),
        (acl(TOPIC, "a*", READ), "star"),
        (acl(TOPIC, "*", READ, pattern=PREFIXED), "star"),
        (acl(TOPIC, "", READ), "empty"),
        (acl(TOPIC, "orders", READ, pattern=MATCH), "literal"),
        (acl(TOPIC, "a@b", READ), "name"),
        (acl(TOPIC, "a/b", READ), "resource"),
        (acl(TOPIC, "orders", 12), "operation"),
        (acl(CLUSTER, "mine", CREATE), "kafka-cluster"),
        (acl(5, "orders", READ), "topics, groups"),
    ],
)
def test_an_acl_without_a_permission_is_refused(binding: Binding, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        grant_of(binding, OURS)


@pytest.mark.parametrize(
    ("resource", "action", "shown"),
    [
        ("*", "consume", [(CLUSTER, "kafka-cluster"), (TOPIC, "*"), (GROUP, "*")]),
        ("public", "produce", [(TOPIC, "*"), (GROUP, "*")]),
        ("public/default/orders", "consume", [(TOPIC, "orders")]),
        ("public/default/orders@billing", "consume", [(TOPIC, "orders"), (GROUP, "billing")]),
        ("other/default/orders", "consume", []),
        ("cluster/users", "administer", [(CLUSTER, "kafka-cluster")]),
    ],
)
def test_other_permissions_are_shown_as_their_acls(
    resource: str, action: str, shown: list[tuple[int, str]]
) -> None:
    pairs = [
        (binding.resource, binding.name)
        for binding in bindings_of(Grant("a", action, resource), OURS)
    ]
    known = [pair for pair in shown if action in WORDS[pair[0]].values()]
    assert pairs == known


def test_a_word_for_two_operations_is_shown_as_both() -> None:
    operations = {
        binding.operation for binding in bindings_of(Grant("a", "alter", f"{OURS}/t@"), OURS)
    }
    assert operations == {ALTER, ALTER_CONFIGS}
    operations = {
        binding.operation for binding in bindings_of(Grant("a", "describe", f"{OURS}/t@"), OURS)
    }
    assert operations == {DESCRIBE, DESCRIBE_CONFIGS}


def any_acl(**fields: object) -> Binding:
    about = {"principal": None, "host": None, "permission": ANY, "pattern": ANY}
    kind, name = fields.pop("kind", ANY), fields.pop("name", None)
    return acl(kind, name, fields.pop("operation", ANY), **(about | fields))


def test_filters_match_as_in_kafka() -> None:
    literal, star = acl(TOPIC, "orders", READ), acl(TOPIC, "*", READ)
    prefixed = acl(TOPIC, "ord", READ, pattern=PREFIXED)
    everything = [literal, star, prefixed]

    def fitting(**fields: object) -> list[Binding]:
        return [binding for binding in everything if any_acl(**fields).matches(binding)]

    assert fitting() == everything
    assert fitting(kind=GROUP) == fitting(operation=WRITE) == fitting(principal="User:bert") == []
    assert fitting(name="orders", pattern=LITERAL) == [literal]
    assert fitting(name="ord", pattern=PREFIXED) == [prefixed]
    assert fitting(name="orders") == [literal]
    assert fitting(name="orders", pattern=MATCH) == everything
    assert fitting(name="or", pattern=MATCH) == [star]
