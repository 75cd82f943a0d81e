"""Whose turn it is in the simulation, and calls outside that may fail, be late, or be done without
an answer.
"""

import threading

CHANGES = frozenset(
    {"put", "delete", "join", "fence", "leave", "take", "release", "publish", "trash_rounds"}
    | {"add_packs", "add_segment", "set_start", "drop_partitions", "drop_trash"}
)


class Killed(BaseException):
    """The process of a broker was killed."""


class Turn(threading.Thread):
    """One broker's process: runs while it has the turn, gives it back at each call outside."""

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
        """Let it run to its next call."""
        self._go.release()
        self._world.back.acquire()

    def switch(self):
        """Give the turn back until it comes again."""
        self._world.back.release()
        self._go.acquire()
        if self.killed:
            raise Killed


class Port:
    """Ledger or store as one broker reaches it."""

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
