"""Proves that ledger and object store belong together, and that the ledger is not older.

Each checks before it changes anything: a broker that joins, every sweep, and each command. A ledger
restored from a dump does not know its own age, so the evidence is in the object store: a round's
object shows that the round before was published, and a mark that its own round was. A round above
the ledger's without a mark was uploaded and never published, which a crash may leave.

Names are read first, then the ledger: a broker may publish meanwhile.
"""

from dataclasses import dataclass

from braidlog.storage.errors import StorageFailed
from braidlog.storage.shared.layout import (
    CLUSTER_NAME,
    MARKS,
    ROUNDS,
    mark_name,
    mark_place,
    round_place,
)
from braidlog.storage.shared.ledger import Cluster, Ledger, LedgerWentBack, ShardRow
from braidlog.storage.shared.object_store import ObjectExists, ObjectMissing, ObjectStore


class NoCluster(StorageFailed):
    """Ledger and object store do not belong to the same cluster; the text gives the reason."""


@dataclass(slots=True, frozen=True, order=True)
class Mark:
    """The ledger has this round of the session, and shards were taken `takes` times in all."""

    session: int
    round: int
    takes: int

    @property
    def name(self) -> str:
        """The name of its object, which says everything."""
        return mark_name(self.session, self.round, self.takes)


def stored_cluster_id(objects: ObjectStore) -> str | None:
    """The id of the cluster that the store belongs to. Raises StoreUnanswered."""
    try:
        size = objects.size(CLUSTER_NAME)
        return objects.get(CLUSTER_NAME, 0, size).decode("ascii", "replace")
    except ObjectMissing:
        return None


def open_cluster(ledger: Ledger, objects: ObjectStore) -> Cluster:
    """The cluster of ledger and store, which must be the same.

    Raises NoCluster, LedgerRefused; LedgerUnanswered, StoreUnanswered.
    """
    cluster = ledger.cluster()
    if cluster is None:
        raise NoCluster("the database holds no cluster: run `braidlog cluster init`")
    stored = stored_cluster_id(objects)
    if stored is None:
        raise NoCluster("the store holds no cluster: run `braidlog cluster init`")
    if stored != cluster.cluster_id:
        raise NoCluster(f"the store is of cluster {stored}, the database of {cluster.cluster_id}")
    return cluster


def prove(ledger: Ledger, objects: ObjectStore) -> Cluster:
    """The cluster, once its ledger is known to be the newest. Raises as both checks."""
    cluster = open_cluster(ledger, objects)
    check_not_older(ledger, objects)
    return cluster


def check_not_older(ledger: Ledger, objects: ObjectStore) -> None:
    """Check that the ledger knows every session, round and owner that the store has evidence of.

    Raises LedgerWentBack; LedgerUnanswered, StoreUnanswered.
    """
    marks = marks_of(objects)
    places = {place for name in objects.names(ROUNDS) if (place := round_place(name))}
    known = {row.session: row.round for row in ledger.sessions()}
    takes = takes_of(ledger.shards())
    published = {(mark.session, mark.round) for mark in marks}
    published |= {(session, max(number - 1, 0)) for session, number in places}
    for session, number in sorted(published):
        if session not in known or number > known[session]:
            raise LedgerWentBack(_older(f"round {number} of session {session} was published"))
    if (marked := max((mark.takes for mark in marks), default=0)) > takes:
        raise LedgerWentBack(_older(f"shards were taken {marked} times, not {takes}"))


def marks_of(objects: ObjectStore) -> list[Mark]:
    """All marks in the store. Raises StoreUnanswered."""
    return [Mark(*place) for name in objects.names(MARKS) if (place := mark_place(name))]


def takes_of(shards: list[ShardRow]) -> int:
    """Number of times that a shard was taken, by any session so far."""
    return sum(row.epoch for row in shards)


def _older(evidence: str) -> str:
    return (
        f"the database is older than the object store, where {evidence}: acknowledged changes are"
        " missing. Restore the newest state of the database"
    )


class Marker:
    """Keeps the marks of a session, and of sessions that it has fenced.

    A session's last mark stays when the session is over. A mark of a session that joined after that
    proves as much: a ledger that has the newer session has the end of the older.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._last: dict[int, Mark] = {}

    def put(self, mark: Mark) -> None:
        """Put a mark, unless present, and remove the mark before. Raises StoreUnanswered."""
        last = self._last.get(mark.session)
        if mark == last:
            return
        try:
            self._objects.put(mark.name, mark.name.encode())
        except ObjectExists:
            pass  # An earlier try without an answer.
        self._last[mark.session] = mark
        if last is not None:
            self._objects.delete(last.name)
