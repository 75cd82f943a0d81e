"""An owner's view of a shard: tenures, packs, and the segments that still need each pack.

Only memory; `packer.py` changes ledger and store, then this view. Belongs to the packing thread;
there is only a single such thread at a time.
"""

from collections.abc import Collection, Iterable, Sequence

from braidlog.storage.shared.layout import SliceEntry, unpack_entries
from braidlog.storage.shared.ledger import Owned, PackMove, PackRow, Tenure
from braidlog.storage.shared.pieces import Located, SegmentPieces, joined_segment, pack_slices
from braidlog.storage.shared.takeover import FoundShard

Key = tuple[int, int]  # Partition and segment base.


class Shard:
    """A shard of this session."""

    def __init__(
        self, owned: Owned, found_shard: FoundShard, whole: Collection[Key], starts: dict[int, int]
    ) -> None:
        """Take the ledger's contents. `whole` are segments with an object of their own, `starts`
        log starts; both may include other shards.
        """
        self.owned = owned
        self._next_pack = max([0, *(pack.pack for pack in found_shard.packs)]) + 1
        self.starts = starts  # As in the ledger, by partition.
        self.gone: set[int] = set()  # Partitions of deleted topics, not yet in the ledger.
        self._tenures = {tenure.epoch: tenure for tenure in found_shard.tenures}
        self._packed = {tenure.epoch: tenure.packed_round for tenure in found_shard.tenures}
        # Slices of earlier owners' segments without an object of their own, by segment.
        self._sources: dict[Key, list[Located]] = {}
        self._needed: dict[int, set[Key]] = {}  # Pack -> segments that need the pack.
        self._users: dict[Key, set[int]] = {}
        for located in found_shard.rounds:
            self._add_source(located)
        for pack in found_shard.packs:
            self.add_pack(pack)
            for located in pack_slices([pack]):
                self._add_source(located)
        covered = [key for key in self._keys() if key in whole or key[1] < starts.get(key[0], 0)]
        self.covered(covered, [])

    # Packing.

    def take_pack_number(self) -> int:
        """Return a number that no pack has."""
        number = self._next_pack
        self._next_pack += 1
        return number

    def moves(self, round_: int) -> list[PackMove]:
        """Return the moves of a pack of everything up to `round_` of this session: closed tenures
        move to their ends, our own tenure to `round_`.
        """
        pack_moves = []
        for epoch, tenure in self._tenures.items():
            end = self._end(tenure, round_)
            if self._packed[epoch] < end:
                pack_moves.append(PackMove(epoch, self._packed[epoch], end))
        return pack_moves

    def _end(self, tenure: Tenure, round_: int) -> int:
        return round_ if tenure.to_round is None else tenure.to_round

    def inherited(self) -> list[Located]:
        """Return the slices of earlier tenures that are in rounds only."""
        return [
            source for sources in self._sources.values() for source in sources if source.is_round
        ]

    def moved(self, moves: Iterable[PackMove]) -> None:
        """Note moves that are now in the ledger."""
        for move in moves:
            self._packed[move.epoch] = move.new

    def add_pack(self, pack: PackRow) -> None:
        """Note a pack that is now in the ledger."""
        keys = {(entry.partition_id, entry.segment_base) for entry in unpack_entries(pack.index)}
        self._needed[pack.pack] = keys
        for key in keys:
            self._users.setdefault(key, set()).add(pack.pack)

    # Places of earlier owners' segments.

    def _add_source(self, located: Located) -> None:
        key = located.entry.partition_id, located.entry.segment_base
        self._sources.setdefault(key, []).append(located)

    def now_packed(self, packed: Sequence[tuple[SliceEntry, str]]) -> dict[Key, SegmentPieces]:
        """Note slices that are now in packs of these names; return the new pieces of the inherited
        segments that changed.
        """
        changed: dict[Key, list[Located]] = {}
        for entry, object_ in packed:
            key = entry.partition_id, entry.segment_base
            if key in self._sources:
                changed.setdefault(key, []).append(Located(entry, object_, False))
        result = {}
        for key, new in changed.items():
            self._sources[key] = [
                source for source in self._sources[key] if not source.is_round
            ] + new
            result[key] = joined_segment(*key, list(self._sources[key]))
        return result

    # Packs and segments no longer needed.

    @property
    def free_packs(self) -> list[int]:
        """Packs that no segment needs."""
        return [pack for pack, keys in self._needed.items() if not keys]

    def freed_by(self, keys: Collection[Key]) -> list[int]:
        """Return the packs that no other segment needs besides these segments."""
        wanted = set(keys)
        packs = {pack for key in wanted for pack in self._users.get(key, ())}
        return [
            *self.free_packs,
            *(p for p in packs if self._needed[p] and self._needed[p] <= wanted),
        ]

    def covered(self, keys: Iterable[Key], packs: Iterable[int]) -> None:
        """Note segments that need no pack any more, and packs that the ledger dropped."""
        for key in list(keys):
            self._sources.pop(key, None)
            for pack in self._users.pop(key, ()):
                self._needed[pack].discard(key)
        for pack in packs:
            self._needed.pop(pack, None)

    def keys_below(self, partition_id: int, start: int) -> list[Key]:
        """Return the segments of a partition below a log start."""
        return [key for key in self._keys() if key[0] == partition_id and key[1] < start]

    def keys_of(self, partitions: Collection[int]) -> list[Key]:
        """Return all segments of some partitions."""
        return [key for key in self._keys() if key[0] in partitions]

    def _keys(self) -> list[Key]:
        return list(self._users.keys() | self._sources.keys())
