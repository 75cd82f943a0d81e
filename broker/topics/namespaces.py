"""Namespaces (Iggy: streams): finding, making, numbering and deleting them. Knows no protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker import errors
from broker.topics.catalogue import LocalCatalogue
from storage.metadata.catalogue_records import NamespaceMeta
from storage.metadata.names import (
    DEFAULT_NAMESPACE,
    DEFAULT_TENANT,
    InvalidTopicName,
    check_namespace,
)


class Namespaces:
    """All namespaces."""

    def __init__(self, catalogue: LocalCatalogue, now_us: Callable[[], int]) -> None:
        self._catalogue = catalogue
        self._now_us = now_us

    def all(self) -> Sequence[NamespaceMeta]:
        """Every namespace, by name."""
        return self._catalogue.state.namespaces()

    def find(self, tenant: str, namespace: str) -> NamespaceMeta | None:
        """The namespace of that name, if there is one."""
        return self._catalogue.state.namespace(tenant, namespace)

    def find_numbered(self, number: int) -> NamespaceMeta | None:
        """The namespace that Iggy's clients know by this number, if there is one."""
        return self._catalogue.state.namespace_by_stream_id(number)

    def number(self, meta: NamespaceMeta) -> int:
        """Iggy's number for a namespace: chosen by an Iggy client, else made here."""
        return self._catalogue.state.stream_id(meta)

    def has_topics(self, tenant: str, namespace: str) -> bool:
        """Whether a topic is in it."""
        return bool(self._catalogue.state.topics(tenant, namespace))

    def get(self, tenant: str, namespace: str) -> NamespaceMeta:
        """The namespace of that name. Raises NamespaceNotFound."""
        meta = self.find(tenant, namespace)
        if meta is None:
            raise errors.NamespaceNotFound(f"no namespace {tenant}/{namespace}")
        return meta

    async def create(self, tenant: str, namespace: str, *, iggy_id: int | None = None) -> int:
        """Make a namespace; return the ticket.

        Raises InvalidName, NamespaceExists, Conflict, StorageFull, StorageFailed.
        """
        try:
            check_namespace(tenant, namespace)
        except InvalidTopicName as error:
            raise errors.InvalidName(str(error)) from error
        self._check_free(iggy_id)
        if self.find(tenant, namespace):
            raise errors.NamespaceExists(f"{tenant}/{namespace} is there already")
        return await self._catalogue.create_namespace(
            tenant, namespace, created_us=self._now_us(), iggy_id=iggy_id
        )

    async def renumber(self, tenant: str, namespace: str, iggy_id: int | None) -> int:
        """Let Iggy's clients know a namespace by this number, or by the one made here again; return
        the ticket.

        Raises NamespaceNotFound, NamespaceExists, Conflict, StorageFull, StorageFailed.
        """
        self.get(tenant, namespace)
        self._check_free(iggy_id)
        return await self._catalogue.number_namespace(tenant, namespace, iggy_id)

    async def delete(self, tenant: str, namespace: str) -> int:
        """Delete a namespace; return the ticket.

        Raises NamespaceNotFound, TopicInUse while it has topics, InvalidRequest for
        `public/default`, where Kafka's listener always leads, Conflict, StorageFull, StorageFailed.
        """
        self.get(tenant, namespace)
        if (tenant, namespace) == (DEFAULT_TENANT, DEFAULT_NAMESPACE):
            raise errors.InvalidRequest(f"{tenant}/{namespace} stays")
        if self.has_topics(tenant, namespace):
            raise errors.TopicInUse(f"{tenant}/{namespace} has topics")
        return await self._catalogue.delete_namespace(tenant, namespace)

    def _check_free(self, number: int | None) -> None:
        if number is not None and self.find_numbered(number):
            raise errors.NamespaceExists(f"a namespace has the number {number}")
