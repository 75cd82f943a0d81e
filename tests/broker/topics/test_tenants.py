"""Tenants: they exist if created or if they have a namespace, within limits, and over restarts."""

import pytest

from braidlog.broker import errors
from braidlog.broker.limits import StateLimits
from braidlog.broker.topics.namespaces import ADMIN_ROLES_BYTES_MAX, ALLOWED_CLUSTERS_BYTES_MAX
from tests.broker.metadata_fakes import MetadataParts


@pytest.fixture
def house():
    return MetadataParts()


async def test_a_tenant_exists_if_created_or_with_a_namespace(house):
    tenants = house.namespaces
    assert tenants.tenants() == ["public"]
    await tenants.create_tenant("shop", ["boss"])
    await tenants.create("acme", "orders")
    for home in (house, house.restarted()):
        assert home.namespaces.tenants() == ["acme", "public", "shop"]
        assert home.namespaces.has_tenant("acme") and home.namespaces.has_tenant("shop")
        assert not home.namespaces.has_tenant("x")
        assert [*home.namespaces.admin_roles("shop")] == ["boss"]
        assert [*home.namespaces.admin_roles("acme")] == []
    for tenant in ("acme", "shop", "public"):
        with pytest.raises(errors.NamespaceExists):
            await tenants.create_tenant(tenant, [])
    with pytest.raises(errors.InvalidName):
        await tenants.create_tenant("a/b", [])


async def test_a_created_tenant_survives_its_last_namespace(house):
    tenants = house.namespaces
    await tenants.create_tenant("shop", [])
    await tenants.create("shop", "cash")
    await tenants.create("acme", "orders")
    with pytest.raises(errors.TopicInUse):
        await tenants.delete_tenant("shop")
    await tenants.delete("shop", "cash")
    await tenants.delete("acme", "orders")
    assert tenants.tenants() == house.restarted().namespaces.tenants() == ["public", "shop"]
    await tenants.delete_tenant("shop")
    assert tenants.tenants() == house.restarted().namespaces.tenants() == ["public"]
    for gone in ("shop", "acme"):
        with pytest.raises(errors.NamespaceNotFound):
            await tenants.delete_tenant(gone)


async def test_the_roles_of_any_tenant_are_replaced_whole(house):
    tenants = house.namespaces
    await tenants.alter_tenant("public", ["boss", "clerk"])
    await tenants.alter_tenant("public", ["chef"])
    assert [*house.restarted().namespaces.admin_roles("public")] == ["chef"]
    with pytest.raises(errors.NamespaceNotFound):
        await tenants.alter_tenant("nobody", [])


async def test_the_allowed_clusters_of_a_tenant_survive_a_restart(house):
    tenants = house.namespaces
    await tenants.create_tenant("shop", ["boss"], ["eu", "us"])
    assert [*tenants.allowed_clusters("public")] == []
    assert [*house.restarted().namespaces.allowed_clusters("shop")] == ["eu", "us"]
    with pytest.raises(errors.InvalidRequest, match="allowed clusters"):
        await tenants.alter_tenant("shop", [], ["e" * ALLOWED_CLUSTERS_BYTES_MAX])
    await tenants.alter_tenant("shop", [])
    assert [*house.restarted().namespaces.allowed_clusters("shop")] == []


async def test_limits_of_tenants_and_of_the_bytes_of_their_roles():
    house = MetadataParts(limits=StateLimits(tenants=2))
    tenants = house.namespaces
    await tenants.create_tenant("a", ["é" * (ADMIN_ROLES_BYTES_MAX // 2 - 1)])
    before = house.tickets
    for change in (
        tenants.create_tenant("b", [""] * 5000),
        tenants.alter_tenant("a", ["é" * 2048]),
    ):
        with pytest.raises(errors.InvalidRequest):
            await change
    assert house.tickets == before
    await tenants.create_tenant("b", [])
    for change in (tenants.create_tenant("c", []), tenants.alter_tenant("public", ["boss"])):
        with pytest.raises(errors.LimitExceeded):
            await change
    await tenants.alter_tenant("b", ["boss"])
    await tenants.delete_tenant("a")
    await tenants.alter_tenant("public", ["boss"])
