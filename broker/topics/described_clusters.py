"""Descriptions of clusters by name, which clients of Pulsar's admin API store and read: addresses,
peers, and settings for clients.

Nothing connects to a described cluster. Fields are not interpreted here. Knows no protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from braidlog.broker import errors
from braidlog.broker.limits import StateLimits
from braidlog.storage.metadata.catalogue_records import (
    ClusterDescribed,
    ClusterFields,
    ClusterForgotten,
)

if TYPE_CHECKING:
    from braidlog.broker.topics.catalogue import LocalCatalogue

CLUSTER_BYTES_MAX: Final = 16 << 10  # Of a description: names and texts together.


class DescribedClusters:
    """The implementation of `ClusterRegistry` in which this broker makes every change."""

    def __init__(self, catalogue: LocalCatalogue, limits: StateLimits) -> None:
        self._catalogue = catalogue
        self._limits = limits

    def names(self) -> Sequence[str]:
        return sorted(self._known())

    def find(self, cluster: str) -> ClusterFields | None:
        return self._known().get(cluster)

    def _known(self) -> Mapping[str, ClusterFields]:
        return self._catalogue.state.tenants.clusters

    async def create(self, cluster: str, fields: ClusterFields) -> int:
        _check_size(cluster, fields)
        if cluster in self._known():
            raise errors.NamespaceExists(f"cluster {cluster} already exists")
        if len(self._known()) >= self._limits.described_clusters:
            text = f"limit of {self._limits.described_clusters} described clusters reached"
            raise errors.LimitExceeded(text)
        return self._describe(cluster, fields)

    async def alter(self, cluster: str, fields: ClusterFields) -> int:
        _check_size(cluster, fields)
        self._check_known(cluster)
        return self._describe(cluster, fields)

    async def delete(self, cluster: str) -> int:
        self._check_known(cluster)
        state = self._catalogue.state
        return self._catalogue.free(state.change_tenants, ClusterForgotten(cluster))

    def _describe(self, cluster: str, fields: ClusterFields) -> int:
        change = ClusterDescribed(cluster, dict(fields))
        return self._catalogue.change(self._catalogue.state.change_tenants, change)

    def _check_known(self, cluster: str) -> None:
        if cluster not in self._known():
            raise errors.NamespaceNotFound(f"cluster {cluster} does not exist")


def _check_size(cluster: str, fields: ClusterFields) -> None:
    size = len(cluster.encode())
    for name, value in fields.items():
        texts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
        size += len(name.encode()) + sum(len(text.encode()) + 1 for text in texts)
    if size > CLUSTER_BYTES_MAX:
        text = f"the description of a cluster has {size} bytes, expected at most"
        raise errors.InvalidRequest(f"{text} {CLUSTER_BYTES_MAX}")
