"""The certain and the possible content of a disk, and a random choice of it: a power cut.

`Medium` takes the recorded calls in order. Synced content is certain. Apart from that, each file
keeps, sector by sector, any of its later contents. Its size may be any later size or end at a
sector between them, and names may be new or old.
"""

import os
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from conformance.simulation.calls import (
    CREATE,
    MAKE_FOLDER,
    REMOVE_FOLDER,
    RENAME,
    ROOT,
    SYNC_ALL,
    SYNC_FILE,
    SYNC_FOLDER,
    TRUNCATE,
    UNLINK,
    WRITE,
    DiskCall,
)

SECTOR = 512  # A disk writes a sector whole or not at all.
PAGE = 4096  # Linux caches and writes a page of a file as a unit.


@dataclass(slots=True)
class MediumFile:
    """A file: its certain content, and later writes and cuts."""

    certain: bytes = b""
    pending: list[DiskCall] = field(default_factory=list)

    def contents(self) -> list[bytes]:
        """Return the certain content, and the content after each pending call."""
        content = bytearray(self.certain)
        versions = [self.certain]
        for call in self.pending:
            apply_to(content, call)
            versions.append(bytes(content))
        return versions

    def take(self, call: DiskCall) -> None:
        """Take the next write or cut. A write to a page rewrites the whole page."""
        if call.kind == WRITE:
            pages = pages_of(call)
            for pending_call in self.pending:
                if pending_call.is_doubtful and pending_call.pos // PAGE in pages:
                    pending_call.is_doubtful = False
        self.pending.append(call)

    def settle(self) -> None:
        """Make everything written to the file certain, except doubtful writes."""
        if self.pending:
            content = bytearray(self.certain)
            for call in self.pending:
                if not call.is_doubtful:
                    apply_to(content, call)
            self.certain = bytes(content)
            self.pending = [call for call in self.pending if call.is_doubtful]

    def doubt(self) -> None:
        """Note a failed sync: the pages count as written from now on, and no later sync covers
        them.
        """
        pieces: list[DiskCall] = []
        for call in self.pending:
            pieces += pieces_by(call, PAGE) if call.kind == WRITE else [call]
        for piece in pieces:
            piece.is_doubtful = piece.kind == WRITE
        self.pending = pieces


def apply_to(content: bytearray, call: DiskCall) -> None:
    """Apply a write or cut to a content."""
    if call.kind == TRUNCATE:
        del content[call.pos :]
        content.extend(bytes(call.pos - len(content)))
        return
    end = call.pos + len(call.data)
    if call.pos > len(content):
        content.extend(bytes(call.pos - len(content)))
    content[call.pos : end] = call.data


@dataclass(slots=True)
class NameChange:
    """A change of names: in each folder, the new number of each name; None removes the name."""

    number: int
    folders: dict[int, dict[str, int | None]]
    is_certain: bool = False


@dataclass(slots=True)
class StoredFolder:
    """A folder: its certain names, and later changes."""

    certain: dict[str, int] = field(default_factory=dict)
    pending: list[NameChange] = field(default_factory=list)


@dataclass(slots=True)
class Loss:
    """Treatment of uncertain data by a power cut: the probabilities that a name or a piece is kept.

    `names_in_order`: like journalling file systems, no name change is kept without earlier changes.
    `apart`: each write's pieces are kept or lost independently, even below a later write to the
    same sector. `stale`: if a file grew without its data, old bytes of other files appear.
    """

    names: float
    data: float
    names_in_order: bool = True
    apart: bool = False
    stale: bool = False


# The plain cases; `choose_loss` draws others.
NOTHING_KEPT = Loss(0.0, 0.0)
ALL_KEPT = Loss(1.0, 1.0)
NAMES_ONLY = Loss(1.0, 0.0)
DATA_ONLY = Loss(0.0, 1.0)
PLAIN = (NOTHING_KEPT, ALL_KEPT, NAMES_ONLY, DATA_ONLY)
SHARES = (0.05, 0.3, 0.5, 0.7, 0.95)


def choose_loss(rng: random.Random) -> Loss:
    """Return a random loss."""
    if rng.random() < 0.2:
        return rng.choice(PLAIN)
    names = 1.0 if rng.random() < 0.4 else rng.choice(SHARES)
    return Loss(
        names,
        rng.choice(SHARES),
        names_in_order=rng.random() < 0.6,
        apart=rng.random() < 0.3,
        stale=rng.random() < 0.1,
    )


ContentOf = Callable[[str, MediumFile], bytes]


class Medium:
    """A disk's files and folders by number."""

    def __init__(self) -> None:
        self.files: dict[int, MediumFile] = {}
        self.folders: dict[int, StoredFolder] = {ROOT: StoredFolder()}
        self._changes = 0

    @classmethod
    def of(cls, root: str, numbers: dict[str, int]) -> "Medium":
        """Return the content below a folder, all certain, numbered as in `Names`."""
        medium = cls()
        for path, number in numbers.items():
            if os.path.isdir(path):
                medium.folders.setdefault(number, StoredFolder())
            else:
                with open(path, "rb") as file:
                    medium.files[number] = MediumFile(file.read())
        for path, number in numbers.items():
            if path != root:
                folder, name = os.path.split(path)
                medium.folders[numbers[folder]].certain[name] = number
        return medium

    # Calls

    def take(self, call: DiskCall) -> None:
        """Take the next call of the record."""
        if call.kind in (WRITE, TRUNCATE):
            self.files[call.node].take(call)
        elif call.kind in (SYNC_FILE, SYNC_FOLDER, SYNC_ALL):
            self._sync(call)
        else:
            self._rename(call)

    def _sync(self, call: DiskCall) -> None:
        if call.failed:
            files = self.files.values() if call.kind == SYNC_ALL else [self.files.get(call.node)]
            for file in files:
                if file is not None:
                    file.doubt()
        elif call.kind == SYNC_FILE:
            self.files[call.node].settle()
        elif call.kind == SYNC_FOLDER:
            self._settle_folder(self.folders[call.node])
        else:
            for file in self.files.values():
                file.settle()
            for folder in self.folders.values():
                self._settle_folder(folder)

    def _settle_folder(self, folder: StoredFolder) -> None:
        number = next(
            folder_number for folder_number, known in self.folders.items() if known is folder
        )
        for change in folder.pending:
            change.is_certain = True
            put_names(folder.certain, change.folders[number])
        folder.pending = []

    def _rename(self, call: DiskCall) -> None:
        names: dict[int, dict[str, int | None]] = {}
        if call.kind in (CREATE, MAKE_FOLDER):
            names = {call.node: {call.name: call.child}}
            if call.kind == CREATE:
                self.files[call.child] = MediumFile()
            else:
                self.folders[call.child] = StoredFolder()
        elif call.kind in (UNLINK, REMOVE_FOLDER):
            names = {call.node: {call.name: None}}
        else:
            assert call.kind == RENAME
            names = {call.node: {call.name: None}}
            names.setdefault(call.to_node, {})[call.to_name] = call.child
        self._changes += 1
        change = NameChange(self._changes, names)
        for number in names:
            self.folders[number].pending.append(change)

    # Contents after a cut

    def cut(self, rng: random.Random, loss: Loss) -> "MediumState":
        """Return a random state after a power cut now."""
        changes = self._kept_changes(rng, loss)
        stale = self._stale_bytes(rng) if loss.stale else b""
        state = MediumState()
        self._collect(ROOT, state, changes, lambda path, file: cut_file(rng, loss, file, stale))
        return state

    def whole(self) -> "MediumState":
        """Return the full state, as a reader sees it while the power is on."""
        return self.pick(lambda path: True, lambda name: True)

    def pick(
        self, keeps: Callable[[str], bool], keeps_name: Callable[[str], bool]
    ) -> "MediumState":
        """Return the certain state, with the data of the picked files and the
        picked name changes.
        """
        state = MediumState()
        changes = {
            change.number
            for folder in self.folders.values()
            for change in folder.pending
            if all(keeps_name(name) for names in change.folders.values() for name in names)
        }
        self._collect(
            ROOT,
            state,
            changes,
            lambda path, file: file.contents()[-1] if keeps(path) else file.certain,
        )
        return state

    def _kept_changes(self, rng: random.Random, loss: Loss) -> set[int]:
        changes = {
            change.number: change for folder in self.folders.values() for change in folder.pending
        }
        numbers = sorted(changes)
        durable = {number for number in numbers if changes[number].is_certain}
        if loss.names_in_order:
            fall = sum(rng.random() < loss.names for _ in numbers)
            if loss.names < 1.0 and numbers:
                fall = rng.randint(0, len(numbers)) if rng.random() < 0.5 else fall
            return durable.union(numbers[:fall]) if loss.names > 0.0 else durable
        return durable | {number for number in numbers if rng.random() < loss.names}

    def _stale_bytes(self, rng: random.Random) -> bytes:
        filled = [file.certain for file in self.files.values() if file.certain]
        return rng.choice(filled) if filled else b""

    def _collect(
        self,
        number: int,
        state: "MediumState",
        durable: set[int],
        content_of: ContentOf,
        path: str = "",
    ) -> None:
        folder = self.folders[number]
        names = dict(folder.certain)
        for change in folder.pending:
            if change.number in durable:
                put_names(names, change.folders[number])
        for name, child in names.items():
            below = os.path.join(path, name)
            if child in self.folders:
                state.folders.append(below)
                self._collect(child, state, durable, content_of, below)
            else:
                state.files[below] = content_of(below, self.files[child])


@dataclass(slots=True)
class MediumState:
    """A directory: folders, outer folders first, and files with their content, by relative path."""

    folders: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def write(self, root: str) -> None:
        """Write the state into an empty folder."""
        for folder in self.folders:
            os.mkdir(os.path.join(root, folder))
        for path, content in self.files.items():
            fd = os.open(os.path.join(root, path), os.O_WRONLY | os.O_CREAT, 0o644)
            os.write(fd, content)
            os.close(fd)


def put_names(names: dict[str, int], change: dict[str, int | None]) -> None:
    """Apply a change to a folder's names."""
    for name, child in change.items():
        if child is None:
            names.pop(name, None)
        else:
            names[name] = child


def cut_file(rng: random.Random, loss: Loss, file: MediumFile, stale: bytes) -> bytes:
    """Return a possible content of the file after a power cut."""
    if not file.pending or loss.data == 0.0:
        return file.certain
    if loss.data == 1.0:
        return file.contents()[-1]
    if loss.apart:
        return cut_apart(rng, loss, file)
    contents = file.contents()
    if rng.random() < 0.3:  # All up to a random call, and the next call torn.
        return torn(rng, contents, file.pending)
    return mixed(rng, loss, contents, file.pending, stale)


def torn(rng: random.Random, contents: list[bytes], pending: list[DiskCall]) -> bytes:
    """Return a random content, with the first pieces of the next write."""
    number = rng.randrange(len(contents))
    if number == len(pending) or pending[number].kind == TRUNCATE:
        return contents[number]
    call = pending[number]
    end = rng.randrange(call.pos, call.pos + len(call.data) + SECTOR) // SECTOR * SECTOR
    part = call.data[: max(end - call.pos, 0)]
    content = bytearray(contents[number])
    if part:
        apply_to(content, DiskCall(WRITE, call.node, data=part, pos=call.pos))
    return bytes(content)


def mixed(
    rng: random.Random, loss: Loss, contents: list[bytes], pending: list[DiskCall], stale: bytes
) -> bytes:
    """Return each sector from a random content; the size is a content's or between two sizes."""
    sizes = sorted({len(content) for content in contents})
    between = range(sizes[0] // SECTOR + 1, -(-sizes[-1] // SECTOR))
    choices = sizes + ([rng.choice(between) * SECTOR] if between else [])
    size = sizes[-1] if rng.random() < loss.data else rng.choice(choices)
    fill = (stale * (size // max(len(stale), 1) + 1))[:size] if stale else bytes(size)
    result = bytearray(contents[0][:size]) + fill[len(contents[0]) :]
    touched = {sector for call in pending for sector in sectors_of(call)}
    for sector in touched:
        start, end = sector * SECTOR, min((sector + 1) * SECTOR, size)
        if start >= end:
            continue
        chosen = contents[-1] if rng.random() < loss.data else rng.choice(contents)
        piece = chosen[start:end]
        if piece:
            result[start : start + len(piece)] = piece
            result[start + len(piece) : end] = bytes(end - start - len(piece))
    return bytes(result)


def pages_of(call: DiskCall) -> range:
    """Return the numbers of the pages that a write touched."""
    return range(call.pos // PAGE, -(-(call.pos + len(call.data)) // PAGE))


def sectors_of(call: DiskCall) -> Iterable[int]:
    """Return the numbers of the sectors that a write touched."""
    if call.kind == TRUNCATE:
        return (call.pos // SECTOR,)
    return range(call.pos // SECTOR, -(-(call.pos + len(call.data)) // SECTOR))


def cut_apart(rng: random.Random, loss: Loss, file: MediumFile) -> bytes:
    """Keep or lose each piece of each write independently."""
    content = bytearray(file.certain)
    for call in file.pending:
        if call.kind == TRUNCATE:
            if rng.random() < loss.data:
                apply_to(content, call)
            continue
        for part in pieces_by(call, SECTOR):
            start, piece = part.pos, part.data
            if rng.random() < loss.data:
                apply_to(content, DiskCall(WRITE, call.node, data=piece, pos=start))
            elif rng.random() < 0.3 and start + len(piece) > len(content):
                content.extend(bytes(start + len(piece) - len(content)))
    return bytes(content)


def pieces_by(call: DiskCall, size: int) -> list[DiskCall]:
    """Return a write as pieces, cut at the multiples of `size` in the file."""
    pieces = []
    pos, end = call.pos, call.pos + len(call.data)
    while pos < end:
        following = min((pos // size + 1) * size, end)
        data = call.data[pos - call.pos : following - call.pos]
        pieces.append(DiskCall(WRITE, call.node, data=data, pos=pos))
        pos = following
    return pieces
