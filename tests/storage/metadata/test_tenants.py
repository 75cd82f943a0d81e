"""Tenants in the catalogue: they survive any start."""

import random

import pytest

from braidlog.storage.errors import DamagedLog, StorageFull, UnwritableChange
from braidlog.storage.metadata.catalogue_records import (
    ClusterDescribed,
    ClusterForgotten,
    TenantGone,
    TenantSet,
)
from braidlog.storage.metadata.journal_catalogue import JournalCatalogue
from tests.storage.metadata.memory_journal import MemoryJournal

# The journal of an earlier program: a new catalogue, then a namespace of another tenant.
EARLIER = [
    b"\x02\x91\x92\x01\x96\xa6public\xa7default\x05\xc0\xce\x01\x00\x00\x00\x80",
    b"\x02\x91\x92\x01\x96\xa4acme\xa4shop\x06\xc0\xce\x01\x00\x00\x01\x80",
]
EARLIER_SET = b"\x03\x91\x93\x11\xa4acme\x92\xa5clerk\xa4boss"
SET = b"\x08\x91\x94\x11\xa4acme\x92\xa5clerk\xa4boss\x91\xa2eu"
DESCRIBED = b"\x08\x91\x93\x19\xa2eu\x82\xa3url\xa1u\xa5peers\x91\xa2us"
FORGOTTEN = b"\x08\x91\x92\x1a\xa2eu"
GONE = b"\x03\x91\x92\x12\xa4acme"


@pytest.fixture
def journal():
    return MemoryJournal()


@pytest.fixture
def catalogue(journal):
    return JournalCatalogue(journal, now_us=5).catalogue


def tenants_of(catalogue):
    return {tenant: [*catalogue.tenants.admin_roles(tenant)] for tenant in catalogue.tenants}


def replayed(journal):
    return JournalCatalogue(journal.reopened(), now_us=0).catalogue


def test_a_tenant_needs_no_namespace_and_outlives_its_last(catalogue, journal):
    catalogue.change_tenants(TenantSet("acme", []))
    catalogue.create_namespace("acme", "shop", created_us=1)
    catalogue.delete_namespace("acme", "shop")
    assert tenants_of(catalogue) == tenants_of(replayed(journal)) == {"acme": []}
    catalogue.change_tenants(TenantSet("acme", ["clerk"]))
    assert tenants_of(catalogue) == tenants_of(replayed(journal)) == {"acme": ["clerk"]}
    assert catalogue.tenants.admin_roles("other") == ()
    catalogue.change_tenants(TenantGone("acme"))
    assert tenants_of(catalogue) == tenants_of(replayed(journal)) == {}
    assert "acme" not in catalogue.tenants and len(catalogue.tenants) == 0


def test_the_bytes_of_both_changes(catalogue, journal):
    catalogue.change_tenants(TenantSet("acme", ["clerk", "boss"], ["eu"]))
    assert journal.records[-1] == SET
    catalogue.change_tenants(TenantGone("acme"))
    assert journal.records[-1] == GONE
    catalogue.create_namespace("acme", "shop", created_us=6)
    assert journal.records[-1][0] == 2  # Earlier programs can read the record types that they know.
    for written, clusters in ((SET, ["eu"]), (EARLIER_SET, [])):
        read = JournalCatalogue(MemoryJournal([*EARLIER, written]), now_us=0).catalogue
        assert tenants_of(read) == {"acme": ["clerk", "boss"]}
        assert read.tenants.allowed_clusters("acme") == clusters


def test_the_bytes_of_a_described_and_a_forgotten_cluster(catalogue, journal):
    fields = {"url": "u", "peers": ["us"]}
    catalogue.change_tenants(ClusterDescribed("eu", fields))
    assert journal.records[-1] == DESCRIBED
    assert catalogue.tenants.clusters == replayed(journal).tenants.clusters == {"eu": fields}
    catalogue.change_tenants(ClusterForgotten("eu"))
    assert journal.records[-1] == FORGOTTEN
    assert catalogue.tenants.clusters == replayed(journal).tenants.clusters == {}
    with pytest.raises(DamagedLog, match="ClusterForgotten of unknown 'eu'"):
        JournalCatalogue(MemoryJournal([*EARLIER, FORGOTTEN]), now_us=0)


def test_an_earlier_journal_has_no_tenants_and_accepts_them():
    journal = MemoryJournal(EARLIER)
    catalogue = JournalCatalogue(journal, now_us=0).catalogue
    assert [(namespace.tenant, namespace.namespace) for namespace in catalogue.namespaces()] == [
        ("acme", "shop"),
        ("public", "default"),
    ]
    assert tenants_of(catalogue) == {}
    assert journal.records == EARLIER
    catalogue.change_tenants(TenantSet("acme", ["boss"]))
    assert tenants_of(replayed(journal)) == {"acme": ["boss"]}


def clusters_of(catalogue):
    return dict(catalogue.tenants.clusters)


def change_at_random(rng, catalogue):
    tenant = rng.choice("abcdef")
    if rng.random() < 0.4:
        if tenant in catalogue.tenants.clusters and rng.random() < 0.4:
            catalogue.change_tenants(ClusterForgotten(tenant))
        else:
            fields = {"url": str(rng.randrange(9)), "tls": rng.random() < 0.5}
            catalogue.change_tenants(ClusterDescribed(tenant, fields))
    elif tenant in catalogue.tenants and rng.random() < 0.4:
        catalogue.change_tenants(TenantGone(tenant))
    else:
        roles = [str(rng.randrange(9)) for _ in range(rng.randrange(3))]
        catalogue.change_tenants(TenantSet(tenant, roles))


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_equals_the_state_with_and_without_a_snapshot(seed):
    rng = random.Random(seed)
    journal = MemoryJournal()
    catalogue = JournalCatalogue(journal, now_us=0).catalogue
    for _ in range(20):
        if rng.random() < 0.2:
            journal.extra_bytes = 1 << 40  # The next change triggers a snapshot.
        change_at_random(rng, catalogue)
        if rng.random() < 0.1:
            catalogue.writer.rewrite()
        assert tenants_of(replayed(journal)) == tenants_of(catalogue)
        assert clusters_of(replayed(journal)) == clusters_of(catalogue)
    catalogue.writer.rewrite()
    assert journal.snapshots
    assert clusters_of(replayed(journal)) == clusters_of(catalogue)
    assert tenants_of(replayed(journal)) == tenants_of(catalogue)


def test_a_refused_change_changes_nothing(catalogue, journal):
    catalogue.change_tenants(TenantSet("acme", ["boss"]))
    with pytest.raises(UnwritableChange):
        catalogue.change_tenants(TenantSet("acme", ["\ud800"]))
    journal.full = True
    for change in (TenantSet("acme", []), TenantSet("other", []), TenantGone("acme")):
        with pytest.raises(StorageFull):
            catalogue.change_tenants(change)
    assert tenants_of(catalogue) == tenants_of(replayed(journal)) == {"acme": ["boss"]}


def test_the_deletion_of_a_missing_tenant_is_damage_that_can_be_skipped():
    records = [*EARLIER, GONE, SET]
    with pytest.raises(DamagedLog, match="TenantGone of unknown 'acme'"):
        JournalCatalogue(MemoryJournal(records), now_us=0)
    lost = []
    catalogue = JournalCatalogue(MemoryJournal(records), now_us=0, lost=lost.append).catalogue
    assert len(lost) == 1
    assert tenants_of(catalogue) == {"acme": ["clerk", "boss"]}
