"""Compares two runs of the cases, and the differences with those that are known.

The list of known differences is a table: api key, case (`*` for every case of the key), field of
the answer (empty for the whole answer), reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from conformance.golden.asking import CLOSED, decoded, differences, facts
from conformance.golden.talk import GoldenRow, GoldenTable

Known = tuple[int, str, str]  # key, case, field


class AnswerDifference(NamedTuple):
    """A field in which an answer differs."""

    key: int
    version: int
    note: str
    path: str
    theirs: str
    ours: str

    def is_of(self, known: Known) -> bool:
        """Return True if a known difference covers this difference."""
        key, note, path = known
        return key == self.key and note in ("*", self.note) and path == self.path


def read_known(path: Path) -> dict[Known, str]:
    """Return the reason of each known difference."""
    known = {}
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            key, note, field, reason = line.split("\t")
            known[int(key), note, field] = reason
    return known


def compare(
    recorded: GoldenTable, ids: Mapping[bytes, bytes], rows: Sequence[GoldenRow]
) -> Iterator[AnswerDifference]:
    """Yield each difference; `rows` are the answers of this broker, with its `ids` of topics."""
    their_names = {topic_id: name.decode() for name, topic_id in recorded.ids.items()}
    our_names = {topic_id: name.decode() for name, topic_id in ids.items()}
    for theirs, ours in zip(recorded.rows, rows, strict=True):
        assert theirs[:3] == ours[:3], f"{theirs[:3]} was recorded, not {ours[:3]}"
        if CLOSED in (theirs.answer, ours.answer):
            if theirs.answer != ours.answer:
                yield AnswerDifference(*ours[:3], "", theirs.answer[:20], ours.answer[:20])
            continue
        key, version = ours.key, ours.version
        before = facts(decoded(key, version, theirs.answer), their_names)
        after = facts(decoded(key, version, ours.answer), our_names)
        for path, their_value, our_value in differences(before, after):
            yield AnswerDifference(*ours[:3], path, their_value, our_value)
