"""The beginnings of the paths of Pulsar's admin API. Knows no handler."""

from __future__ import annotations

from typing import Final

ADMIN: Final = "/admin/v2"
NAMESPACE: Final = "{tenant}/{namespace}"
NAMED: Final = f"{NAMESPACE}/{{name}}"
LOOKUP: Final = "/lookup/v2/topic"
BROKERS, TENANTS, CLUSTERS = f"{ADMIN}/brokers", f"{ADMIN}/tenants", f"{ADMIN}/clusters"
SPACES: Final = f"{ADMIN}/namespaces"
SPACE: Final = f"{SPACES}/{NAMESPACE}"
TOPICS, TOPIC = f"{ADMIN}/persistent/{NAMESPACE}", f"{ADMIN}/persistent/{NAMED}"
NON_PERSISTENT: Final = f"{ADMIN}/non-persistent/{NAMED}"
SUBSCRIPTION: Final = f"{TOPIC}/subscription/{{subscription}}"
# A policy of the topic, so the right to the topic counts, not that to the subscription.
RATE_OF_SUBSCRIPTION: Final = f"{TOPIC}/{{of_subscription}}/dispatchRate"
SCHEMAS: Final = f"{ADMIN}/schemas/{NAMED}"
# Calls that no other route serves; they are refused.
OTHERS: Final = ("/admin/{rest:path}", "/lookup/{rest:path}")
OTHERS_OF_NON_PERSISTENT: Final = f"{NON_PERSISTENT}/{{rest:path}}"
