"""Missing and existing objects have the texts that Apache Pulsar 4.2.4 answered with."""

import pytest

from tests.protocols.http.pulsar_admin.test_admin import ADMIN

SHOP = f"{ADMIN}/namespaces/public/shop"
TOPICS = f"{ADMIN}/persistent/public/shop"
# Method, path below `ADMIN` and body; status and text of the answer.
ANSWERS = """
GET persistent/public/shop/gone/stats -> 404 Topic persistent://public/shop/gone not found
GET persistent/public/shop/gone/subscriptions -> 404 Topic persistent://public/shop/gone not found
GET persistent/public/shop/gone/retention -> 404 Topic persistent://public/shop/gone not found
DELETE persistent/public/shop/gone -> 404 Topic persistent://public/shop/gone not found
POST persistent/public/shop/gone/compactionThreshold 1
  -> 404 Topic persistent://public/shop/gone not found
GET persistent/public/shop/parts-partition-7/stats -> 404 Topic partitions were not yet created
POST persistent/public/shop/orders/subscription/gone/skip_all
  -> 404 Subscription gone not found for topic persistent://public/shop/orders
GET persistent/public/shop/orders/subscription/gone/properties
  -> 404 Subscription gone not found for topic persistent://public/shop/orders
PUT persistent/public/shop/orders -> 409 This topic already exists
PUT persistent/public/shop/parts/partitions 3 -> 409 This topic already exists
PUT persistent/public/gone/orders -> 404 Namespace not found
GET persistent/public/gone -> 404 Namespace does not exist
POST persistent/public/shop/parts/partitions 1
  -> 422 Desired partitions 1 can't be less than the current partitions 3.
POST persistent/public/shop/gone/partitions 4
  -> 409 Topic persistent://public/shop/gone is not the partitioned topic.
GET namespaces/public/gone -> 404 Namespace does not exist
GET namespaces/public/gone/retention -> 404 Namespace does not exist
PUT namespaces/public/shop -> 409 Namespace already exists
DELETE namespaces/public/shop -> 409 Cannot delete non empty namespace
DELETE namespaces/public/gone -> 404 Namespace public/gone does not exist.
GET namespaces/gone -> 404 Tenant not found
PUT namespaces/gone/shop -> 404 Tenant does not exist
GET namespaces/public/shop/topics?mode=persistent
  -> 404 mode 'persistent' is unknown, expected PERSISTENT, NON_PERSISTENT, ALL
GET persistent/public/shop/gone/permissions -> 404 Topic persistent://public/shop/gone not found
POST persistent/public/shop/gone/permissions/anna own
  -> 404 Topic persistent://public/shop/gone not found
DELETE persistent/public/shop/gone/permissions/anna
  -> 404 Topic persistent://public/shop/gone not found
DELETE persistent/public/shop/gone/partitions
  -> 404 Topic persistent://public/shop/gone not found.
GET persistent/public/shop/orders/examinemessage?messagePosition=1
  -> 412 Could not examine messages due to the total message is zero
GET tenants/gone -> 404 Tenant does not exist
PUT tenants/a%20b own -> 412 Tenant name is not valid
PUT tenants/other blank -> 412 AdminRoles contains whitespace in the beginning or end.
PUT namespaces/public/a%20b -> 412 Namespace name is not valid
PUT namespaces/public/a@b -> 412 Namespace name is not valid
POST tenants/gone own -> 404 Tenant gone not found
POST tenants/gone {} -> 412 Clusters cannot be null
POST tenants/gone -> 412 TenantInfo is null
PUT tenants/bank own -> 409 Tenant already exist
GET non-persistent/public/shop/gone/stats
  -> 404 Topic non-persistent://public/shop/gone not found
"""
ROWS = [line.split(" -> ") for line in ANSWERS.strip().replace("\n  ->", " ->").splitlines()]
OWN = {"allowedClusters": ["standalone"]}
BODIES = {"": None, "{}": {}, "own": OWN, "blank": {**OWN, "adminRoles": [" anna"]}}


@pytest.fixture
async def shop(ask):
    await ask("PUT", SHOP, status=204)
    await ask("PUT", f"{TOPICS}/orders", status=204)
    await ask("PUT", f"{TOPICS}/parts/partitions", 3, 204)
    await ask("PUT", f"{ADMIN}/tenants/bank", OWN, 204)


async def test_errors_have_apaches_texts(shop, ask):
    for request, expected in ROWS:
        method, path, body = [*request.split(" "), ""][:3]
        sent = BODIES[body] if body in BODIES else int(body)
        answer = await ask(method, f"{ADMIN}/{path}", sent)
        assert f"{answer.status} {answer.json['reason']}" == expected, request
