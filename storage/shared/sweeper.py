"""Deletes objects: due objects in the ledger's trash, and orphans.

Any broker may sweep at any time. For trash, the object is deleted first, then the row: repeating
this does no harm. An orphan was put but never counted, and no session is left that could make the
object count.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from braidlog.storage.shared.layout import PACKS, ROUNDS, SEGMENTS, round_place
from braidlog.storage.shared.ledger import Ledger, LedgerWentBack, SessionState, object_names
from braidlog.storage.shared.object_store import ObjectMissing, ObjectStore
from braidlog.storage.shared.proofs import open_cluster, prove

# Objects deleted between two statements.
BATCH = 500


@dataclass(slots=True)
class Swept:
    """The results of a sweep."""

    trash: int = 0
    orphans: int = 0
    rounds: int = 0


class Sweeper:
    """Deletes for a cluster, once ledger and object store are proved to belong together.

    Raises StoreUnanswered, LedgerUnanswered: try again later. Raises NoCluster, LedgerWentBack: the
    objects belong to another ledger, and nothing was deleted.
    """

    def __init__(self, ledger: Ledger, objects: ObjectStore, delete_after_ms: int) -> None:
        self._ledger = ledger
        self._objects = objects
        self._delete_after_ms = delete_after_ms

    def clean(self) -> Swept:
        """Put packed rounds into the trash, and delete the due objects."""
        open_cluster(self._ledger, self._objects)
        swept = Swept(rounds=self._ledger.trash_rounds(self._delete_after_ms))
        while due := self._ledger.due_trash(BATCH):
            for name in due:
                self._objects.delete(name)
            self._ledger.drop_trash(due)
            swept.trash += len(due)
        return swept

    def sweep(self) -> Swept:
        """As `clean`, and delete orphans, if the ledger is not older than the objects."""
        prove(self._ledger, self._objects)
        swept = self.clean()
        for name in self.orphans():
            self._objects.delete(name)
            swept.orphans += 1
        return swept

    def orphans(self) -> Iterator[str]:
        """Yield objects that can never count. Names are read first, then the owners, then the rows:
        only the owner of its epoch, which put an object, can give the object a row.
        """
        names = [name for kind in (PACKS, SEGMENTS) for name in self._objects.names(kind)]
        rounds = list(self._objects.names(ROUNDS))
        shards = self._ledger.shards()
        owned = {(row.shard, row.epoch) for row in shards if row.session is not None}
        contents = self._ledger.contents([row.shard for row in shards])
        wanted = set(object_names(contents))
        self._check_present(wanted.difference(names, rounds))
        wanted |= self._ledger.trash()
        for name in names:
            if name not in wanted and is_over(name, owned):
                yield name
        yield from self._round_orphans(rounds)

    def _check_present(self, unlisted: Collection[str]) -> None:
        """Check that objects which a row names are there, though they were not listed: their rows
        may be new. If rounds are gone that an older ledger names, packs that it does not know are
        the only copy. Raises LedgerWentBack.
        """
        missing = [name for name in unlisted if not self._is_there(name)]
        if missing:
            contents = self._ledger.contents([row.shard for row in self._ledger.shards()])
            for name in sorted(set(missing).intersection(object_names(contents))):
                raise LedgerWentBack(
                    f"the database names object {name}, which the store does not have: it is older"
                    " than the store, or the object was removed. No orphans are deleted"
                )

    def _is_there(self, name: str) -> bool:
        try:
            self._objects.size(name)
        except ObjectMissing:
            return False
        return True

    def _round_orphans(self, names: Sequence[str]) -> Iterator[str]:
        """For each session that is over, its round 0 and those above the last that counted."""
        ends = {
            row.session: row.round
            for row in self._ledger.sessions()
            if row.state is not SessionState.LIVE
        }
        for name in names:
            place = round_place(name)
            if place is not None and place[0] in ends:
                session, number = place
                if number == 0 or number > ends[session]:
                    yield name


def is_over(name: str, owned: Collection[tuple[int, int]]) -> bool:
    """Return True if no session owns a pack's or segment's shard in that epoch any more; `owned`
    are shards and their epochs. A segment's name omits the shard: any such epoch may fit.
    """
    kind, group, rest = name.split("/", 2)
    try:
        if kind + "/" == PACKS:
            return (int(group), int(rest.split("-")[0])) not in owned
        return int(rest.split("-")[1]) not in {epoch for _, epoch in owned}
    except (ValueError, IndexError):
        return False  # Not ours: it is left alone.
