"""The names in a data directory (FORMAT.md section 1)."""

from collections.abc import Iterable

from braidlog.storage.log.segment_header import KIND_CATALOGUE, KIND_CURSORS, KIND_NODES

CATALOGUE_NAME, CURSORS_NAME, NODES_NAME = "catalogue", "cursors", "nodes"
LOCK_NAME = "lock"
PARTITIONS_NAME = "partitions"
SET_ASIDE_NAME = "set-aside"
DELETED_SUFFIX = ".deleted"

# Journals by the name of their folder. Each has number 1 of its own kind.
JOURNAL_KINDS = {CATALOGUE_NAME: KIND_CATALOGUE, CURSORS_NAME: KIND_CURSORS}
# With the journal that only some listeners need: a directory may lack it.
ALL_JOURNAL_KINDS = {**JOURNAL_KINDS, NODES_NAME: KIND_NODES}


def numbers_among(names: Iterable[str]) -> list[int]:
    """Return the names that are partition ids, as numbers."""
    return [int(name) for name in names if name.isdecimal() and not name.startswith("0")]
