"""Makes a cluster: one id in the ledger and in the object store shows that they belong together."""

import secrets
import uuid

from storage.shared.layout import CLUSTER_NAME
from storage.shared.ledger import FORMAT, Cluster, Ledger
from storage.shared.object_store import ObjectExists, ObjectStore

# Size of the secret by which brokers know each other: too long to guess.
SECRET_BYTES = 32


class NoCluster(Exception):
    """Ledger and object store are not of one cluster; the text says why."""


def make_cluster(ledger: Ledger, objects: ObjectStore, shards: int) -> tuple[bool, Cluster]:
    """Make a cluster, or complete one that was begun; returns whether it is new, and what it is.

    Raises NoCluster where the store is another cluster's; StoreUnanswered, LedgerUnanswered.
    """
    wanted = Cluster(str(uuid.uuid4()), FORMAT, shards, secrets.token_hex(SECRET_BYTES))
    made = ledger.init(wanted)
    cluster = ledger.cluster()
    assert cluster is not None
    name = cluster.cluster_id.encode()
    try:
        objects.put(CLUSTER_NAME, name)
    except ObjectExists:
        there = objects.get(CLUSTER_NAME, 0, objects.size(CLUSTER_NAME))
        if there != name:
            found = there.decode("ascii", "replace")
            raise NoCluster(
                f"the store is of cluster {found}, the database of {cluster.cluster_id}:"
                " name an empty store, or the database that belongs to this one"
            ) from None
    return made, cluster
