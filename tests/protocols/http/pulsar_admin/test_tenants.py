"""Tenants by the admin API: acknowledged changes survive any end of the broker."""

from contextlib import asynccontextmanager

import pytest
import trio

from braidlog.broker.broker import Broker
from braidlog.protocols.http.app import make_app
from braidlog.protocols.http.options import RestOptions
from tests.broker.test_broker import config_for
from tests.protocols.http.asgi import call
from tests.protocols.http.pulsar_admin.test_admin import ADMIN

TENANTS = f"{ADMIN}/tenants"
OWN = {"allowedClusters": ["standalone"]}


@asynccontextmanager
async def running(folder, *, dies=False):
    """Run a life of the broker over a folder; yield a function that returns its tenants."""
    broker = Broker.open(config_for(folder))
    app = make_app(broker, RestOptions(), broker.stopping)

    async def checked_call(method, path, body=None, status=200):
        answer = await call(app, method, path, body)
        assert answer.status == status, (path, answer.body)
        if status == 204:
            assert broker.durability.durable_ticket >= broker.catalogue.ticket
        return answer

    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        yield checked_call
        nursery.cancel_scope.cancel()
    if dies:
        broker.abandon()
    else:
        broker.close()


async def roles_of(ask, tenant):
    return (await ask("GET", f"{TENANTS}/{tenant}")).json["adminRoles"]


@pytest.mark.parametrize("dies", [False, True])
async def test_tenants_survive_a_restart(tmp_path, dies):
    async with running(tmp_path, dies=dies) as ask:
        await ask("PUT", f"{TENANTS}/bank", {"adminRoles": ["boss", "clerk"], **OWN}, 204)
        await ask("PUT", f"{TENANTS}/gone", OWN, 204)
        await ask("POST", f"{TENANTS}/public", {"adminRoles": ["chef"], **OWN}, 204)
        await ask("PUT", f"{ADMIN}/namespaces/bank/cash", status=204)
    async with running(tmp_path, dies=dies) as ask:
        assert (await ask("GET", TENANTS)).json == ["bank", "gone", "public"]
        assert await roles_of(ask, "bank") == ["boss", "clerk"]
        assert await roles_of(ask, "public") == ["chef"]
        assert (await ask("GET", f"{ADMIN}/namespaces/gone")).json == []
        await ask("PUT", f"{TENANTS}/gone", OWN, 409)
        await ask("DELETE", f"{TENANTS}/gone", status=204)
        await ask("DELETE", f"{TENANTS}/bank", status=409)
        await ask("DELETE", f"{ADMIN}/namespaces/bank/cash", status=204)
        await ask("POST", f"{TENANTS}/bank", {"adminRoles": ["boss"], **OWN}, 204)
    async with running(tmp_path, dies=dies) as ask:
        assert (await ask("GET", TENANTS)).json == ["bank", "public"]
        assert await roles_of(ask, "bank") == ["boss"]
        await ask("GET", f"{TENANTS}/gone", status=404)


@pytest.mark.limits(tenants=1)
async def test_refusals_have_the_texts_of_apaches_broker(ask):
    await ask("PUT", f"{TENANTS}/bank", {"adminRoles": ["é" * 2048], **OWN}, 400)
    await ask("GET", f"{TENANTS}/bank", status=404)
    await ask("PUT", f"{TENANTS}/bank", {"adminRoles": ["é" * 2047], **OWN}, 204)
    assert "Tenant already exist" in (await ask("PUT", f"{TENANTS}/bank", OWN, 409)).json["reason"]
    await ask("PUT", f"{TENANTS}/other", OWN, 429)
    await ask("POST", f"{TENANTS}/public", OWN, 429)
    await ask("PUT", f"{ADMIN}/namespaces/bank/cash", status=204)
    answer = await ask("DELETE", f"{TENANTS}/bank", status=409)
    assert "active namespaces" in answer.json["reason"]
    await ask("DELETE", f"{TENANTS}/public", status=409)
    await ask("DELETE", f"{TENANTS}/nobody", status=404)
    await ask("GET", f"{ADMIN}/namespaces/nobody", status=404)
