"""Partition folders under a wrong number: the owner of their records, and the repair.

People rename and copy folders by hand. Every segment header names the partition of its records: by
intact headers a folder gets its right number, or goes to `set-aside` whole. Knows folders and
segment headers, no batch and no journal.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping

from braidlog.storage.log.files import Files
from braidlog.storage.log.segment_header import (
    KIND_PARTITION,
    SEGMENT_HEADER_BYTES,
    BadSegment,
    unpack_segment_header,
)
from braidlog.storage.log.segment_names import segment_names
from braidlog.storage.tools.repair_step import RepairStep
from braidlog.storage.tools.rewriting import SetAside


class FolderPlacement:
    """The right place of each partition folder.

    `moves`: a folder's number to its new number. `strays`: a folder's number to the partition of
    its records, if those records are not wanted there or anywhere.
    """

    def __init__(self, files: Files, path: str, numbers: Collection[int]) -> None:
        """Look at the folders of these numbers below `path`."""
        self.moves: dict[int, int] = {}
        self.strays: dict[int, int] = {}
        self.refusals: list[str] = []
        self._files = files
        self._path = path
        self._numbers = set(numbers)
        self._held = {number: held_partition(files, self.folder(number)) for number in numbers}
        self.decide(None)

    def folder(self, number: int) -> str:
        """Path of the folder of that number."""
        return os.path.join(self._path, str(number))

    def decide(self, known: Collection[int] | None) -> None:
        """Decide the moves; `known` are the partitions in the catalogue, None if unknown."""
        self.moves, self.strays, self.refusals = {}, {}, []
        wrong = {
            number: held
            for number, held in self._held.items()
            if held is not None and held != number
        }
        for number, held in wrong.items():
            if self._held.get(held) == held or (known is not None and held not in known):
                self.strays[number] = held
            else:
                self.moves[number] = held
        while blocked := self._blocked():
            for number in blocked:
                held = self.moves.pop(number)
                text = f"{self.folder(number)} holds records of partition {held}, and so may "
                text += "another folder; nothing of it is changed"
                self.refusals.append(text)

    def _blocked(self) -> list[int]:
        """Return folders whose right place is occupied by a folder that stays, or is
        wanted by two.
        """
        targets = list(self.moves.values())
        staying = self._numbers - self.moves.keys() - self.strays.keys()
        return [
            number
            for number, target in self.moves.items()
            if target in staying or targets.count(target) > 1
        ]

    @property
    def refused(self) -> set[int]:
        """Numbers of folders that hold another partition and stay where they are."""
        wrong = {n for n, held in self._held.items() if held is not None and held != n}
        return wrong - self.moves.keys() - self.strays.keys()

    def place_of(self, number: int) -> str | None:
        """Return the folder that holds that partition now; None if the folder must be made."""
        for source, target in self.moves.items():
            if target == number:
                return self.folder(source)
        gone = number in self.moves or number in self.strays
        return None if gone or number not in self._numbers else self.folder(number)

    def partitions(self) -> Iterable[tuple[int, str]]:
        """(partition id, folder now) of every partition that exists, with the id it will have."""
        ids = (self._numbers | set(self.moves.values())) - self.refused
        places = ((number, self.place_of(number)) for number in sorted(ids))
        return [(number, folder) for number, folder in places if folder is not None]

    def stray_steps(self, aside: SetAside) -> list[RepairStep]:
        """Return steps that set aside, whole, folders without a place: they come before
        all others.
        """
        return [
            RepairStep(
                f"partition {number}",
                [
                    f"{self.folder(number)} holds records of partition {held}, which is in its own "
                    "folder or of no topic: it is moved to set-aside whole"
                ],
                _moving_aside(aside, self.folder(number), str(number)),
            )
            for number, held in self.strays.items()
        ]

    def move_steps(self) -> list[RepairStep]:
        """Return steps that give folders their right numbers: they come after all others."""
        if not self.moves:
            return []
        lines = [
            f"{self.folder(number)} holds partition {held}: it becomes {self.folder(held)}; no "
            "record is lost"
            for number, held in self.moves.items()
        ]
        return [RepairStep("partitions", lines, lambda: self._move(self.moves))]

    def _move(self, moves: Mapping[int, int]) -> None:
        """Rename in turn. After a kill in between, the contents identify the remaining folders."""
        left = dict(moves)
        spare = max(self._numbers | set(left.values())) + 1
        while left:
            ready = [number for number, target in left.items() if not self._is_there(target)]
            if ready:
                self._rename(ready[0], left.pop(ready[0]))
            else:  # Folders that swap places: one makes room.
                first = next(iter(left))
                self._rename(first, spare)
                left[spare] = left.pop(first)

    def _is_there(self, number: int) -> bool:
        return os.path.lexists(self.folder(number))

    def _rename(self, number: int, target: int) -> None:
        self._files.rename(self.folder(number), self.folder(target))
        self._files.sync_folder(self._path)


def _moving_aside(aside: SetAside, folder: str, name: str) -> Callable[[], None]:
    return lambda: aside.move(folder, name)


def held_partition(files: Files, folder: str) -> int | None:
    """Return the partition that all intact segment headers of a folder name; None if there is none,
    or the headers disagree.
    """
    partition_ids = set()
    for name in segment_names(files.names(folder))[0]:
        file = files.open(os.path.join(folder, name.file_name))
        try:
            header = unpack_segment_header(file.read_at(SEGMENT_HEADER_BYTES, 0))
        except (BadSegment, OSError):
            continue
        finally:
            file.close()
        if header.kind == KIND_PARTITION:
            partition_ids.add(header.partition_id)
    return partition_ids.pop() if len(partition_ids) == 1 else None
