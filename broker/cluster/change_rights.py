"""The rights that a client needs for a change of topics and namespaces that this broker forwards:
exactly the rights for a local change.

Knows no broker and no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from braidlog.broker.access.rights import CLUSTER, Action, Resource
from braidlog.broker.access.subscription_rules import is_restriction
from braidlog.broker.delivery.non_persistent.topics import PARTITIONS_OF
from braidlog.storage.metadata.names import TopicName

if TYPE_CHECKING:
    from braidlog.broker.topics.registry import NamespaceRegistry

Right = tuple[Action, Resource]

ON_TOPIC: Final[Mapping[str, Action]] = {
    "create": Action.CREATE,
    "add_partitions": Action.ALTER,
    "keep_partitions": Action.DELETE,  # Deletes the records in the partitions.
    "alter_settings": Action.ALTER,
    "terminate": Action.ALTER,
    "delete": Action.DELETE,
}


def rights_for(
    namespaces: NamespaceRegistry, change: str, arguments: Sequence[Any]
) -> Iterator[Right]:
    """Return each right that a change needs; names and arguments as in `LocalChanges`.

    Raises LookupError, TypeError, ValueError for a call that no broker makes.
    """
    if change in ON_TOPIC:
        yield ON_TOPIC[change], Resource.of_topic(TopicName(*arguments[0]))
    else:
        yield from ON_NAMESPACE[change](namespaces, *arguments)


def _create(
    _: NamespaceRegistry, tenant: str, namespace: str, iggy_id: int | None
) -> Iterator[Right]:
    yield Action.CREATE, Resource.of_namespace(tenant, namespace)


def _renumber(
    _: NamespaceRegistry, tenant: str, namespace: str, iggy_id: int | None
) -> Iterator[Right]:
    """Return the rights to create and delete Iggy's streams; the namespace stays."""
    action = Action.DELETE if iggy_id is None else Action.CREATE
    yield action, Resource.of_namespace(tenant, namespace)


def _delete(_: NamespaceRegistry, tenant: str, namespace: str) -> Iterator[Right]:
    yield Action.DELETE, Resource.of_namespace(tenant, namespace)


def _alter(
    namespaces: NamespaceRegistry, tenant: str, namespace: str, changes: Mapping[str, object]
) -> Iterator[Right]:
    """Return the rights to alter a namespace, whose settings also list partitioned non-persistent
    topics, and restrict the users of subscriptions.
    """
    meta = namespaces.find(tenant, namespace)
    for key, value in changes.items():
        if is_restriction(key):
            yield Action.ADMINISTER, Resource.of_namespace(tenant, namespace)
            continue
        if not key.startswith(PARTITIONS_OF):
            yield Action.ALTER, Resource.of_namespace(tenant, namespace)
            continue
        topic = TopicName(tenant, namespace, key.removeprefix(PARTITIONS_OF))
        is_there = meta is not None and key in meta.settings
        action = Action.ALTER if is_there else Action.CREATE
        yield Action.DELETE if value is None else action, Resource.of_topic(topic)
    if not changes:
        yield Action.ALTER, Resource.of_namespace(tenant, namespace)


def _on_cluster(_: NamespaceRegistry, cluster: str, *fields: object) -> Iterator[Right]:
    """Return the right to describe clusters and to delete descriptions."""
    yield Action.ADMINISTER, CLUSTER


def _on_tenant(action: Action) -> Callable[..., Iterator[Right]]:
    def rights(_: NamespaceRegistry, tenant: str, *lists: object) -> Iterator[Right]:
        yield action, Resource.of_tenant(tenant)

    return rights


ON_NAMESPACE: Final[Mapping[str, Callable[..., Iterator[Right]]]] = {
    "create_namespace": _create,
    "renumber_namespace": _renumber,
    "delete_namespace": _delete,
    "alter_namespace": _alter,
    "create_tenant": _on_tenant(Action.CREATE),
    "alter_tenant": _on_tenant(Action.ALTER),
    "delete_tenant": _on_tenant(Action.DELETE),
    "create_cluster": _on_cluster,
    "alter_cluster": _on_cluster,
    "delete_cluster": _on_cluster,
}
