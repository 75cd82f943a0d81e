"""A disk that can lose its power: what would be on it then, out of a recording of the calls.

What a sync covered is there. Of the rest any part may be: each write whole, not, or in pieces of
a sector; each new, removed or cut file as it is now or as it was. Names and sizes go together with
the journal of a file system in order: if a later change of names is there, so are earlier ones.
"""

import os
from dataclasses import dataclass, field

SECTOR = 512


@dataclass
class Inode:
    """Content of one file: what is surely on the disk, and writes that may be."""

    durable: bytes = b""
    pending: list = field(default_factory=list)

    def settle(self):
        self.durable = self.content(None)
        self.pending = []

    def content(self, rng):
        """With no chance given: as the running system sees it."""
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
    """Plays a recording of calls and leaves a folder as a power cut could have left it."""

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
        """From now on these paths name these files, None: nothing. All of it happens, or none."""
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
        """Folders are made again as their files need them."""

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
