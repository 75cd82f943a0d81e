"""Makes a cluster: a common id in the ledger and in the object store shows that they belong
together.
"""

import secrets
import uuid
from collections.abc import Callable

from braidlog.storage.shared.layout import CLUSTER_NAME
from braidlog.storage.shared.ledger import FORMAT, Cluster, Ledger
from braidlog.storage.shared.object_store import ObjectExists, ObjectStore
from braidlog.storage.shared.proofs import NoCluster, stored_cluster_id

# Size of the secret by which brokers know each other: too long to guess.
SECRET_BYTES = 32


def make_cluster(ledger: Ledger, objects: ObjectStore, shards: int) -> tuple[bool, Cluster]:
    """Make a cluster, or complete a cluster that was begun; return True if it is new, and the
    cluster.

    Raises NoCluster, with nothing changed, if the store belongs to another cluster or is not the
    store that the ledger's brokers have used. Raises StoreUnanswered, LedgerUnanswered.
    """
    _check_pair(ledger.cluster(), stored_cluster_id(objects), lambda: bool(ledger.sessions()))
    wanted = Cluster(str(uuid.uuid4()), FORMAT, shards, secrets.token_hex(SECRET_BYTES))
    new_cluster = ledger.init(wanted)
    cluster = ledger.cluster()
    assert cluster is not None
    try:
        objects.put(CLUSTER_NAME, cluster.cluster_id.encode())
    except ObjectExists:  # Another `init`, at the same time or earlier.
        _check_pair(cluster, stored_cluster_id(objects), lambda: False)
    return new_cluster, cluster


def _check_pair(cluster: Cluster | None, stored: str | None, was_used: Callable[[], bool]) -> None:
    """Check that a ledger and a store may be, or become, the same cluster. Raises NoCluster."""
    if stored is None:
        if cluster is not None and was_used():
            raise NoCluster(
                f"the store is empty, but brokers have used the database of cluster"
                f" {cluster.cluster_id}: name the store that they used"
            )
    elif cluster is None or stored != cluster.cluster_id:
        database = "empty" if cluster is None else f"of {cluster.cluster_id}"
        raise NoCluster(
            f"the store is of cluster {stored}, the database is {database}:"
            " name an empty store, or the database that belongs to this store"
        )
