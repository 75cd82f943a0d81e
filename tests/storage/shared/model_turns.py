"""Turns of the simulation, and external calls that may fail, be late, or have an effect without an
answer.
"""

import threading

CHANGES = frozenset(
    {"put", "delete", "join", "fence", "leave", "take", "release", "publish", "trash_rounds"}
    | {"add_packs", "add_segment", "set_start", "drop_partitions", "drop_trash"}
)


class Killed(BaseException):
    """The process of a broker was killed."""


class BrokerThread(threading.Thread):
    """A broker's process: runs during its turn, and passes the turn at each external call."""

    def __init__(self, world, body):
        super().__init__(daemon=True)
        self._world = world
        self._body = body
        self._go = threading.Lock()
        self._go.acquire()
        self.killed = False
        self.over = False
        self.error = None

    def run(self):
        self._go.acquire()
        try:
            if not self.killed:
                self._body(self)
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.over = True
        self._world.back.release()

    def resume(self):
        """Let the process run to its next call."""
        self._go.release()
        self._world.back.acquire()

    def switch(self):
        """Pass the turn and wait for it."""
        self._world.back.release()
        self._go.acquire()
        if self.killed:
            raise Killed


class Port:
    """A ledger or store in the view of a broker."""

    def __init__(self, world, turn, target, unanswered):
        self._world, self._turn, self._target = world, turn, target
        self._unanswered = unanswered

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self._turn.switch()

            def do():
                done = getattr(self._target, name)(*args, **kwargs)
                if name == "publish" and done:
                    self._world.note_published(*args)
                return done

            return self._world.outcome(do, name in CHANGES, self._unanswered)

        return call
