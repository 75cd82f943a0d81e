"""The catalogue of a single broker: every change goes into one journal."""

from collections.abc import Callable

from braidlog.storage.errors import DamagedLog
from braidlog.storage.metadata.catalogue import Catalogue
from braidlog.storage.metadata.catalogue_records import CatalogueChange
from braidlog.storage.metadata.catalogue_writer import Changes
from braidlog.storage.metadata.changes import ChangeJournal, Journal, in_records
from braidlog.storage.metadata.names import TopicName


class JournalCatalogue:
    """A `CatalogueWriter` over a journal."""

    def __init__(
        self, journal: Journal, *, now_us: int, lost: Callable[[DamagedLog], None] | None = None
    ) -> None:
        """Replay the journal; a new journal gets the namespace `public/default`.

        `lost` is called for each change that is skipped because the change is unreadable or names
        something missing; without `lost` that is an error. Raises DamagedLog, UnknownRecord.
        """
        self._journal: Changes = ChangeJournal(journal, CatalogueChange, "catalogue")
        self.catalogue = Catalogue(self)
        self._journal.replay(self.catalogue.apply, lost)
        self.catalogue.history.restart(self.place)
        self.catalogue.create_default_namespace(now_us)

    @property
    def ticket(self) -> int:
        return self._journal.ticket

    @property
    def place(self) -> int:
        return self._journal.last_place

    def write(self, *changes: CatalogueChange) -> int:
        return self.catalogue.write(changes, self._journal, self.catalogue.state())

    def scope(self, name: TopicName) -> int:
        """Return 0: all producers share a single scope."""
        return 0

    def rewrite(self) -> None:
        """Replace the journal's records by the state now. Raises StorageFull, StorageFailed."""
        self._journal.rewrite(in_records(self.catalogue.state()))
