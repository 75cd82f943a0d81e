"""A clock that tests set, in the unit that its reader expects."""


class FakeClock:
    """Returns `now`, which tests change."""

    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now
