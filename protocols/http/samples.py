"""Commands to copy, by operation, for `/docs` and `/openapi.json`.

They work one after the other in the order of the page, on a fresh broker. A command that deletes
makes its object first. `tests/protocols/http/test_page.py` runs each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HOST: Final = "http://127.0.0.1:8080"
# An operation in a line, its commands below; `@` stands for the host.
_TEXT: Final = r"""
GET /api/v1/topics
    curl '@/api/v1/topics?namespace=public/default'
PUT /api/v1/topics/{tenant}/{namespace}/{topic}
    curl -X PUT @/api/v1/topics/public/default/orders --json '{"partitions": 3}'
GET /api/v1/topics/{tenant}/{namespace}/{topic}
    curl @/api/v1/topics/public/default/orders
PATCH /api/v1/topics/{tenant}/{namespace}/{topic}
    curl -X PATCH @/api/v1/topics/public/default/orders \
      --json '{"partitions": 4, "settings": {"retention_ms": "7d"}}'
DELETE /api/v1/topics/{tenant}/{namespace}/{topic}
    curl -X PUT @/api/v1/topics/public/default/old-orders
    curl -X DELETE @/api/v1/topics/public/default/old-orders
POST /api/v1/topics/{tenant}/{namespace}/{topic}/messages
    curl @/api/v1/topics/public/default/orders/messages --json '{"messages": [
      {"key": "k0", "value": "old", "publish_us": 1764000000000000}]}'
GET /api/v1/topics/{tenant}/{namespace}/{topic}/writers
    curl @/api/v1/topics/public/default/orders/writers
POST /topics/{tenant}/{namespace}/{topic}
    curl @/topics/public/default/orders --json '{"messages": [
      {"key": "k1", "value": "hello", "properties": {"source": "curl"}},
      {"value": "world"}]}'
POST /topics/{tenant}/{namespace}/{topic}/partitions/{partition}
    curl @/topics/public/default/orders/partitions/0 --json '{"messages": [{"value": "first"}]}'
GET /topics/{tenant}/{namespace}/{topic}/partitions/{partition}/messages
    curl '@/topics/public/default/orders/partitions/0/messages?position=earliest&timeout=0'
POST /topics/{tenant}/{namespace}/{topic}/subscription/{subscription}
    curl @/topics/public/default/orders/subscription/billing \
      --json '{"id": "w1", "initial_position": "Earliest"}'
GET /topics/{tenant}/{namespace}/{topic}/subscription/{subscription}/consumer/{consumer}/messages
    curl '@/topics/public/default/orders/subscription/billing/consumer/w1/messages?max_messages=10'
DELETE /topics/{tenant}/{namespace}/{topic}/subscription/{subscription}/consumer/{consumer}
    curl @/topics/public/default/orders/subscription/audit --json '{"id": "w2"}'
    curl -X DELETE @/topics/public/default/orders/subscription/audit/consumer/w2
GET /topics/{tenant}/{namespace}/{topic}/subscription/{subscription}/cursor
    curl @/topics/public/default/orders/subscription/billing/cursor
POST /topics/{tenant}/{namespace}/{topic}/subscription/{subscription}/cursor
    curl @/topics/public/default/orders/subscription/billing/cursor \
      --json '{"type": "Seek", "position": "earliest"}'
GET /api/v1/groups
    curl '@/api/v1/groups?topic=public/default/orders'
GET /api/v1/groups/{tenant}/{namespace}/{topic}/{group}
    curl @/api/v1/groups/public/default/orders/billing
DELETE /api/v1/groups/{tenant}/{namespace}/{topic}/{group}
    curl -X PUT @/api/v1/groups/public/default/orders/old/positions \
      --json '{"positions": {"0": 0}}'
    curl -X DELETE @/api/v1/groups/public/default/orders/old
GET /api/v1/http-consumers
    curl @/api/v1/http-consumers
GET /api/v1/log
    curl @/api/v1/log
GET /api/v1/log/{tenant}/{namespace}/{topic}/{partition}
    curl @/api/v1/log/public/default/orders/0
GET /api/v1/log/{tenant}/{namespace}/{topic}/{partition}/batches
    curl '@/api/v1/log/public/default/orders/0/batches?offset=0' --output batches.bin
PUT /api/v1/groups/{tenant}/{namespace}/{topic}/{group}/positions
    curl -X PUT @/api/v1/groups/public/default/orders/export/positions \
      --json '{"positions": {"0": 1}}'
GET /api/v1/exports
    curl @/api/v1/exports
POST /api/v1/exports
    curl @/api/v1/exports --json '{"target": "/lake", "group": "nightly", "rows": 1, "files": 1,
      "bytes": 512, "began_us": 1700000000000000, "seconds": 2.5, "ranges": []}'
GET /api/v1/connections
    curl @/api/v1/connections
GET /api/v1/stats
    curl @/api/v1/stats
GET /api/v1/history
    curl @/api/v1/history
GET /api/v1/brokers
    curl @/api/v1/brokers
GET /api/v1/audit
    curl '@/api/v1/audit?limit=10&refused=true'
GET /api/v1/config
    curl @/api/v1/config
GET /api/v1/users
    curl @/api/v1/users
PUT /api/v1/users/{user}
    curl -X PUT @/api/v1/users/anna \
      --json '{"password": "correct horse battery staple", "roles": ["readers"]}'
GET /api/v1/users/{user}
    curl @/api/v1/users/anna
PATCH /api/v1/users/{user}
    curl -X PATCH @/api/v1/users/anna --json '{"roles": ["readers", "writers"]}'
DELETE /api/v1/users/{user}
    curl -X PUT @/api/v1/users/otto --json '{"password": "correct horse battery staple"}'
    curl -X DELETE @/api/v1/users/otto
PUT /api/v1/users/{user}/tokens/{token}
    curl -X PUT @/api/v1/users/anna/tokens/laptop --json '{}'
DELETE /api/v1/users/{user}/tokens/{token}
    curl -X PUT @/api/v1/users/anna/tokens/old --json '{}'
    curl -X DELETE @/api/v1/users/anna/tokens/old
POST /api/v1/permissions
    curl @/api/v1/permissions --json '{"subject": "anna", "action": "consume",
      "resource": "public/default/orders"}'
GET /api/v1/permissions
    curl '@/api/v1/permissions?subject=anna'
GET /api/v1/permissions/test
    curl '@/api/v1/permissions/test?user=anna&action=consume&resource=public/default/orders'
DELETE /api/v1/permissions
    curl @/api/v1/permissions --json '{"subject": "role:readers", "action": "consume",
      "resource": "acme"}'
    curl -X DELETE '@/api/v1/permissions?subject=role:readers&action=consume&resource=acme'
GET /healthz
    curl @/healthz
GET /readyz
    curl @/readyz
GET /metrics
    curl @/metrics
GET /openapi.json
    curl @/openapi.json --output openapi.json
GET /admin/v2/clusters
    curl @/admin/v2/clusters
GET /admin/v2/brokers/health
    curl @/admin/v2/brokers/health
GET /lookup/v2/topic/persistent/{tenant}/{namespace}/{name}
    curl @/lookup/v2/topic/persistent/public/default/orders
GET /admin/v2/tenants
    curl @/admin/v2/tenants
PUT /admin/v2/tenants/{tenant}
    curl -X PUT @/admin/v2/tenants/acme --json '{"allowedClusters": ["standalone"]}'
PUT /admin/v2/namespaces/{tenant}/{namespace}
    curl -X PUT @/admin/v2/namespaces/acme/shop
GET /admin/v2/namespaces/{tenant}/{namespace}
    curl @/admin/v2/namespaces/acme/shop
GET /admin/v2/namespaces/{tenant}/{namespace}/topics
    curl @/admin/v2/namespaces/public/default/topics
PUT /admin/v2/persistent/{tenant}/{namespace}/{name}/partitions
    curl -X PUT @/admin/v2/persistent/acme/shop/payments/partitions --json 3
GET /admin/v2/persistent/{tenant}/{namespace}/{name}/partitions
    curl @/admin/v2/persistent/acme/shop/payments/partitions
POST /admin/v2/persistent/{tenant}/{namespace}/{name}/partitions
    curl @/admin/v2/persistent/acme/shop/payments/partitions --json 4
DELETE /admin/v2/persistent/{tenant}/{namespace}/{name}/partitions
    curl -X PUT @/admin/v2/persistent/acme/shop/returns/partitions --json 2
    curl -X DELETE @/admin/v2/persistent/acme/shop/returns/partitions
GET /admin/v2/persistent/{tenant}/{namespace}/{name}/stats
    curl @/admin/v2/persistent/acme/shop/payments-partition-0/stats
GET /admin/v2/persistent/{tenant}/{namespace}/{name}/partitioned-stats
    curl @/admin/v2/persistent/acme/shop/payments/partitioned-stats
PUT /admin/v2/persistent/{tenant}/{namespace}/{name}/subscription/{subscription}
    curl -X PUT @/admin/v2/persistent/acme/shop/payments/subscription/ledger
GET /admin/v2/persistent/{tenant}/{namespace}/{name}/subscriptions
    curl @/admin/v2/persistent/acme/shop/payments/subscriptions
POST /admin/v2/persistent/{tenant}/{namespace}/{name}/subscription/{subscription}/resetcursor/{time}
    curl -X POST @/admin/v2/persistent/acme/shop/payments/subscription/ledger/resetcursor/0
POST /admin/v2/persistent/{tenant}/{namespace}/{name}/subscription/{subscription}/skip_all
    curl -X POST @/admin/v2/persistent/acme/shop/payments/subscription/ledger/skip_all
POST /admin/v2/schemas/{tenant}/{namespace}/{name}/schema
    curl @/admin/v2/schemas/acme/shop/payments/schema \
      --json '{"type": "STRING", "schema": "", "properties": {}}'
GET /admin/v2/schemas/{tenant}/{namespace}/{name}/schema
    curl @/admin/v2/schemas/acme/shop/payments/schema
POST /admin/v2/persistent/{tenant}/{namespace}/{name}/retention
    curl @/admin/v2/persistent/acme/shop/payments/retention \
      --json '{"retentionTimeInMinutes": 1440, "retentionSizeInMB": 512}'
GET /admin/v2/persistent/{tenant}/{namespace}/{name}/retention
    curl @/admin/v2/persistent/acme/shop/payments/retention
"""


def _samples(text: str) -> dict[str, str]:
    samples: dict[str, str] = {}
    operation = ""
    for line in text.strip().splitlines():
        if line.startswith("    "):
            joined = (samples.get(operation, ""), line[4:].replace("@/", f"{HOST}/"))
            samples[operation] = "\n".join(filter(None, joined))
        else:
            operation = line
    return samples


SAMPLES: Final[Mapping[str, str]] = _samples(_TEXT)
