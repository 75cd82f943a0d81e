"""Users, permissions and the catalogue below them, in memory, for tests of access control."""

from braidlog.broker.access.rules import Grant, GrantedRules
from braidlog.broker.access.users import Users
from braidlog.broker.limits import STATE_LIMITS
from braidlog.storage.metadata.journal_catalogue import JournalCatalogue
from tests.storage.metadata.memory_journal import MemoryJournal


class MemoryCatalogue:
    """The users' part of `broker/topics/catalogue.py`, over a journal in memory."""

    def __init__(self, records=()):
        self.journal = MemoryJournal(records)
        self.state = JournalCatalogue(self.journal, now_us=0).catalogue

    @property
    def users(self):
        return self.state.users

    @property
    def ticket(self):
        return self.state.ticket

    def change_users(self, *changes):
        return self.state.change_users(*changes)

    def reopened(self):
        """Return the catalogue after a restart."""
        return MemoryCatalogue(self.journal.records)


class KeptUsers:
    """The two services, with clocks that a test sets."""

    def __init__(self, catalogue=None, superusers=(), limits=STATE_LIMITS):
        self.catalogue = catalogue or MemoryCatalogue()
        self.now_us = 1_000_000
        self.clock_s = 0.0
        self.users = Users(self.catalogue, now_us=lambda: self.now_us, clock_s=lambda: self.clock_s)
        self.rules = GrantedRules(self.catalogue, superusers, limits)

    def granting(self, name, *actions):
        """Return the changes after which a user has exactly these actions on `public`."""
        wanted = [Grant(name, action, "public") for action in actions]
        return lambda: self.rules.replacement(wanted, self.rules.list(name))
