"""The writer of a catalogue's changes: the interface, and the guarantees of its implementations.

`JournalCatalogue` (`journal_catalogue.py`) has a single journal in the data directory.
`SharedCatalogue` (`storage/shared/catalogue.py`) has a journal for each shard of a cluster that
this broker owns. Both hold a `Catalogue`, and choose the journal before they change the catalogue.

**Atomic.** The changes of a call are a record of one journal, written whole or not at all. The
changes are in memory when `write` returns. A call that raises has changed nothing.

**Durable.** A change is durable once the returned ticket is. `ticket` covers every change so far.

**Errors.** StorageFull, StorageFailed, UnwritableChange. In a cluster, a change for another
broker's shard raises NotOwned.

**Threads.** All calls belong to the thread that owns the journals.
"""

from typing import Protocol

from braidlog.storage.metadata.catalogue_records import CatalogueChange
from braidlog.storage.metadata.changes import ChangeJournal
from braidlog.storage.metadata.names import TopicName

Changes = ChangeJournal[CatalogueChange]


class CatalogueWriter(Protocol):
    """Writes the changes of a catalogue."""

    @property
    def ticket(self) -> int:
        """After this ticket every change so far is on disk."""

    @property
    def place(self) -> int:
        """Place of the last change in its journal; rises with each change, also over restarts."""

    def write(self, *changes: CatalogueChange) -> int:
        """Write changes of one shard as a record, by `Catalogue.write`; return the ticket."""

    def scope(self, name: TopicName) -> int:
        """Return the scope in which a topic's producers are numbered."""
