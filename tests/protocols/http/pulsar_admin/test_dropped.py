"""Content of requests that would be dropped is refused with 501."""

import pytest

from tests.protocols.http.pulsar_admin.test_admin import ADMIN, TOPIC

SPACE = f"{ADMIN}/namespaces/public/default"
VOLATILE = f"{ADMIN}/non-persistent/public/default/news"


@pytest.mark.parametrize("place", [SPACE, TOPIC])
async def test_a_class_of_storage_is_refused(ask, place):
    await ask("PUT", TOPIC, status=204)
    own = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
    name = {"managedLedgerStorageClassName": "fast"}
    answer = await ask("POST", f"{place}/persistence", own | name, 501)
    assert answer.json["reason"].startswith("managedLedgerStorageClassName:")
    assert (await ask("GET", f"{place}/persistence", status=200)).body == b""
    await ask("POST", f"{place}/persistence", own | dict.fromkeys(name), 204)


async def test_a_replicated_subscription_is_refused(ask):
    await ask("PUT", TOPIC, status=204)
    await ask("PUT", f"{TOPIC}/subscription/s?replicated=true", "earliest", 501)
    assert (await ask("GET", f"{TOPIC}/subscriptions")).json == []
    await ask("PUT", f"{TOPIC}/subscription/s?replicated=false", "earliest", 204)


async def test_properties_of_a_non_persistent_topic_are_refused(ask):
    await ask("PUT", VOLATILE, {"a": "b"}, 501)
    await ask("GET", f"{VOLATILE}/stats", status=404)
    await ask("PUT", VOLATILE, {}, 204)
