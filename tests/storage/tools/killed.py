"""Repairs that end at each change of the disk in turn, like a kill of the process."""

import shutil

from braidlog.storage.tools.repair import Repair
from tests.storage.shared.model_turns import Killed


def killed_repairs(data_dir, folder):
    """Yield (a copy of `data_dir`, True if its repair finished); the last copy has True.

    The copies lie below `folder`, one at a time; each repair makes another change more than the
    last.
    """
    calls, finished = 0, False
    while not finished:
        path = folder / f"killed-{calls}"
        shutil.copytree(data_dir, path)
        repair = Repair(path, lambda done, total: None)
        plan = repair.plan()
        left = _kill_after(repair.files, calls)
        try:
            for step in plan.steps:
                step.apply()
            finished = True
        except Killed:
            left[0] = -1  # Descriptors are closed as by the kernel.
        repair.close()
        yield path, finished
        shutil.rmtree(path)
        calls += 1


def _kill_after(files, calls):
    """Let the disk make `calls` more changes, then none."""
    disk = files.disk
    left = [calls]

    def guarded(method):
        def call(*arguments):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return method(*arguments)

        return call

    for name in ("write", "truncate", "rename", "unlink", "make_folder", "sync_data"):
        setattr(disk, name, guarded(getattr(disk, name)))
    return left
