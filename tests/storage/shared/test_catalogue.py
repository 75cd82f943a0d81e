"""The catalogue of a broker in a cluster: its data of its own shards."""

import pytest

from braidlog.storage.errors import NotOwned
from braidlog.storage.log.committer import Committer
from braidlog.storage.metadata.catalogue import SCOPE_BITS
from braidlog.storage.metadata.catalogue_records import TenantGone, TenantSet
from braidlog.storage.metadata.user_records import Grant, Granted, UserMeta, UserSet
from braidlog.storage.shared.catalogue import SharedCatalogue
from braidlog.storage.shared.journal import LedgerJournal
from braidlog.storage.shared.ledger import SNAPSHOT

SHARDS, SHARD, OTHER = 4, 3, 2


class ShardRows:
    """A shard's rows, after rounds and their snapshots."""

    def __init__(self):
        self.rows = []

    def wait_s(self, members):
        return 0.0

    def keep(self, points):
        for point in points:
            for _, _, first in point.snapshots:
                self.rows = [row for row in self.rows if row.place >= first]
            self.rows += point.rows


def owner(rows, shard=SHARD):
    """Return the catalogue of a broker that took the shard, its journal, and the end of a round."""
    committer = Committer(None, keeper=rows)
    journal = LedgerJournal(shard, 2, list(rows.rows), committer)
    catalogue = SharedCatalogue(SHARDS)
    catalogue.hold(shard, journal)
    return catalogue, committer.commit


def test_producers_of_a_shard_have_unique_numbers_over_owners():
    rows = ShardRows()
    numbers = []
    for life in range(3):
        catalogue, end_round = owner(rows)
        numbers += [
            catalogue.catalogue.producer_id(b"p%d%d" % (life, at), SHARD) for at in range(5)
        ]
        assert catalogue.catalogue.producer_id(b"p00", SHARD) == numbers[0]
        end_round()
    assert numbers == [(SHARD << SCOPE_BITS) + at for at in range(1, 16)]


def test_the_number_of_a_forgotten_producer_is_never_reused():
    rows = ShardRows()
    catalogue, end_round = owner(rows)
    gone = catalogue.catalogue.producer_id(b"gone", SHARD)
    catalogue.catalogue.forget_producers([gone])
    end_round()
    catalogue, _ = owner(rows)
    assert catalogue.catalogue.producer_id(b"gone", SHARD) == gone + 1


def test_numbers_of_different_shards_differ():
    catalogue, _ = owner(ShardRows())
    with pytest.raises(NotOwned):
        catalogue.catalogue.producer_id(b"p", OTHER)
    journal = LedgerJournal(OTHER, 2, [], Committer(None, keeper=ShardRows()))
    catalogue.hold(OTHER, journal)
    assert catalogue.catalogue.producer_id(b"p", OTHER) >> SCOPE_BITS == OTHER
    assert catalogue.catalogue.producer_id(b"p", SHARD) >> SCOPE_BITS == SHARD


def test_a_returning_shard_is_counted_from_its_journal():
    rows = ShardRows()
    catalogue, end_round = owner(rows)
    first = catalogue.catalogue.producer_id(b"here", SHARD)
    end_round()
    catalogue.give_up(SHARD)
    other, end_round = owner(rows)
    elsewhere = other.catalogue.producer_id(b"elsewhere", SHARD)
    end_round()
    committer = Committer(None, keeper=rows)
    catalogue.hold(SHARD, LedgerJournal(SHARD, 2, list(rows.rows), committer))
    assert catalogue.catalogue.producer_id(b"new", SHARD) == elsewhere + 1 == first + 2


def test_tenants_are_followed_and_kept_by_the_next_owner():
    rows = ShardRows()
    committer = Committer(None, keeper=rows)
    first, follower = SharedCatalogue(SHARDS), SharedCatalogue(SHARDS)
    first.own(LedgerJournal(0, 2, [], committer), now_us=1)
    with pytest.raises(NotOwned):
        follower.catalogue.change_tenants(TenantSet("acme", []))
    for change in (TenantSet("gone", []), TenantGone("gone"), TenantSet("acme", ["boss"])):
        first.catalogue.change_tenants(change)
    committer.commit()
    follower.follow(rows.rows)
    assert [*follower.catalogue.tenants] == ["acme"]
    large = TenantSet("large", ["x" * 4000])
    while all(row.kind < SNAPSHOT for row in rows.rows):
        first.catalogue.change_tenants(large)
        committer.commit()
    follower.follow_anew(rows.rows)
    next_owner = SharedCatalogue(SHARDS)
    next_owner.own(LedgerJournal(0, 2, [*rows.rows], Committer(None, keeper=rows)), now_us=2)
    for catalogue in (follower, next_owner):
        assert [*catalogue.catalogue.tenants] == ["acme", "large"]
        assert catalogue.catalogue.tenants.admin_roles("acme") == ["boss"]


def test_holders_of_the_users_see_changes_of_any_owner():
    """Logins and permissions were built with the first user book."""
    rows = ShardRows()
    committer = Committer(None, keeper=rows)
    first, follower, next_owner = (SharedCatalogue(SHARDS) for _ in range(3))
    books = [life.catalogue.users for life in (first, follower, next_owner)]
    first.own(LedgerJournal(0, 2, [], committer), now_us=1)
    first.catalogue.change_users(UserSet(UserMeta(7, "bob", "", 1, True, [])))
    granted = Grant("bob", "produce", "topic public/default/t")
    first.catalogue.change_users(Granted(granted))
    committer.commit()
    follower.follow(rows.rows[:1])
    before = follower.catalogue.users.version, follower.catalogue.users.grants_version
    follower.follow_anew(rows.rows)
    next_owner.own(LedgerJournal(0, 2, [*rows.rows], Committer(None, keeper=rows)), now_us=2)
    for book in books:
        assert [user.name for user in book.all()] == ["bob"] and book.grants_of("bob") == [granted]
        assert book.find("bob") is book.by_id(7) and book.next_user_id == 8
    assert (
        follower.catalogue.users.version > before[0]
        and follower.catalogue.users.grants_version > before[1]
    )


def test_a_follower_remembers_changes_at_the_owners_places_and_goes_on_as_owner():
    rows = ShardRows()
    committer = Committer(None, keeper=rows)
    first, follower = SharedCatalogue(SHARDS), SharedCatalogue(SHARDS)
    first.own(LedgerJournal(0, 2, [], committer), now_us=1)
    committer.commit()
    follower.follow_anew(rows.rows)
    begun, seen = follower.place, len(rows.rows)
    for number in range(3):
        first.catalogue.create_namespace("public", f"n{number}", created_us=5)
    committer.commit()
    follower.follow(rows.rows[seen:])

    def places(catalogue, after):
        past = catalogue.catalogue.history.after(after)
        return [(change.place, change.after.namespace) for change in past]

    assert follower.catalogue.history.begins_after == begun
    expected = [(begun + 1 + number, f"n{number}") for number in range(3)]
    assert places(follower, begun) == places(first, begun) == expected
    follower.own(LedgerJournal(0, 2, [*rows.rows], Committer(None, keeper=rows)), now_us=2)
    assert places(follower, begun) == expected
    follower.catalogue.delete_namespace("public", "n1")
    (gone,) = follower.catalogue.history.after(expected[-1][0])
    assert (gone.before.namespace, gone.after) == ("n1", None)
    late = SharedCatalogue(SHARDS)
    late.own(LedgerJournal(0, 2, [*rows.rows], Committer(None, keeper=rows)), now_us=2)
    assert late.catalogue.history.begins_after == expected[-1][0]
