"""A disk that can lose its power: the possible content afterwards, from a recording of the calls.

Synced content is certain. Apart from that, any part may exist: each write whole, lost, or in pieces
of a sector; each new, removed or cut file in its new or old state. Names and sizes follow a file
system's journal in order: with a later change of names, all earlier changes exist too.
"""

import os
from dataclasses import dataclass, field

SECTOR = 512


@dataclass
class Inode:
    """Content of a file: certain content, and possible writes."""

    durable: bytes = b""
    pending: list = field(default_factory=list)

    def settle(self):
        self.durable = self.content(None)
        self.pending = []

    def content(self, rng):
        """Return the content; without `rng`, as the running system sees it."""
        data = bytearray(self.durable)
        for kind, pos, piece in self.pending:
            if kind == "truncate":
                if rng is None or rng.random() < 0.5:
                    del data[pos:]
                continue
            for start in range(0, len(piece), SECTOR):
                part = piece[start : start + SECTOR]
                if rng is not None and rng.random() < 0.5:
                    continue
                end = pos + start + len(part)
                data.extend(bytes(max(0, end - len(data))))
                data[pos + start : end] = part
        return bytes(data)


class Power:
    """Plays a recording of calls and leaves a folder in a possible state after a power cut."""

    def __init__(self, calls, root):
        self.root = os.path.abspath(root)
        self.names = {}
        self.durable_names = {}
        self.unsynced_names = []
        for call in calls:
            getattr(self, call.name)(call)

    def create(self, call):
        self.change({call.path: Inode()})

    def change(self, inodes):
        """Change the names of files, atomically; None removes a name."""
        self.unsynced_names.append(inodes)
        self.put(self.names, inodes)

    @staticmethod
    def put(names, inodes):
        for path, inode in inodes.items():
            if inode is None:
                names.pop(path, None)
            else:
                names[path] = inode

    def write(self, call):
        self.names[call.path].pending.append(("write", call.pos, call.data))

    def truncate(self, call):
        self.names[call.path].pending.append(("truncate", call.pos, b""))

    def sync_data(self, call):
        if call.path in self.names:
            self.names[call.path].settle()

    def settle_names(self):
        for inodes in self.unsynced_names:
            self.put(self.durable_names, inodes)
        self.unsynced_names = []

    def sync_folder(self, call):
        self.settle_names()

    def sync_file_system(self, call):
        self.settle_names()
        for inode in self.names.values():
            inode.settle()

    def unlink(self, call):
        if call.path in self.names:
            self.change({call.path: None})

    def rename(self, call):
        self.change({call.path: None, os.fsdecode(call.data): self.names[call.path]})

    def make_folder(self, call):
        """Do nothing: folders are created again when their files need them."""

    def leave(self, folder, rng):
        """Write the state after the cut into `folder`."""
        names = dict(self.durable_names)
        for inodes in self.unsynced_names[: rng.randint(0, len(self.unsynced_names))]:
            self.put(names, inodes)
        for path, inode in names.items():
            target = os.path.join(folder, os.path.relpath(path, self.root))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(inode.content(rng))
