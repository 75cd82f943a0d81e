"""Clusters by name: stored descriptions of others, and the own cluster, as Apache 4.2.4 answers."""

import pytest

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.broker.topics.described_clusters import CLUSTER_BYTES_MAX
from tests.broker.access.rules import Nothing
from tests.protocols.http.pulsar_admin.test_admin import ADMIN
from tests.protocols.http.pulsar_admin.test_tenants import running

CLUSTERS = f"{ADMIN}/clusters"
OTHER, OWN = f"{CLUSTERS}/other", f"{CLUSTERS}/standalone"
TENANT, SPACE = f"{ADMIN}/tenants/bank", f"{ADMIN}/namespaces/bank/cash"
HOST = {"Host": "h:8080"}
ADDRESSES = {"serviceUrl": "http://127.0.0.1:1", "brokerServiceUrl": "pulsar://127.0.0.1:2"}
SWITCHES = {
    "brokerClientTlsEnabled": False,
    "tlsAllowInsecureConnection": False,
    "brokerClientTlsEnabledWithKeyStore": False,
}
WHOLE = {
    "serviceUrl": "http://x:1",
    "serviceUrlTls": "https://x:2",
    "brokerServiceUrl": "pulsar://x:3",
    "brokerServiceUrlTls": "pulsar+ssl://x:4",
    "proxyServiceUrl": "pulsar://x:5",
    "authenticationPlugin": "org.x.P",
    "authenticationParameters": "a:b",
    "proxyProtocol": "SNI",
    "peerClusterNames": ["other"],
    "brokerClientTlsEnabled": True,
    "tlsAllowInsecureConnection": True,
    "brokerClientTlsEnabledWithKeyStore": True,
    "brokerClientTlsTrustStoreType": "JKS",
    "brokerClientTlsTrustStore": "/a",
    "brokerClientTlsTrustStorePassword": "pw",
    "brokerClientTlsKeyStoreType": "JKS",
    "brokerClientTlsKeyStore": "/b",
    "brokerClientTlsKeyStorePassword": "pw2",
    "brokerClientTrustCertsFilePath": "/c",
    "brokerClientKeyFilePath": "/d",
    "brokerClientCertificateFilePath": "/e",
    "listenerName": "l",
    "brokerClientSslFactoryPlugin": "p",
    "brokerClientSslFactoryPluginParams": "pp",
}


async def test_a_cluster_is_stored_replaced_and_deleted(ask):
    await ask("PUT", OTHER, ADDRESSES, 200)
    answer = await ask("PUT", OTHER, ADDRESSES, 409)
    assert answer.json == {"reason": "Cluster already exists"}
    assert (await ask("GET", OTHER, status=200)).json == ADDRESSES | SWITCHES
    assert (await ask("GET", CLUSTERS)).json == ["other", "standalone"]
    await ask("POST", OTHER, WHOLE, 200)
    assert (await ask("GET", OTHER, status=200)).json == WHOLE
    await ask("POST", OTHER, {}, 200)
    assert (await ask("GET", OTHER, status=200)).json == SWITCHES
    await ask("DELETE", OTHER, status=204)
    for method, body in (("GET", None), ("POST", {}), ("DELETE", None)):
        assert (await ask(method, OTHER, body, 404)).json == {"reason": "Cluster does not exist"}
    assert (await ask("GET", CLUSTERS)).json == ["standalone"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (None, "cluster data is required"),
        ([], None),
        ("x", None),
        ({"serviceUrl": "pulsar://x:1"}, "service url, example: http://pulsar.example.com:8080"),
        ({"serviceUrl": "http://"}, "service url, example: http://pulsar.example.com:8080"),
        ({"serviceUrl": "http://a b"}, "service url, example: http://pulsar.example.com:8080"),
        ({"serviceUrl": 5}, "service url, example: http://pulsar.example.com:8080"),
        ({"brokerServiceUrl": "http://x:1"}, "pulsar://pulsar.example.com:6650"),
        ({"serviceUrlTls": "http://x:1"}, "tls url, example: https://pulsar.example.com:8443"),
        ({"brokerServiceUrlTls": "pulsar://x"}, "pulsar+ssl://pulsar.example.com:6651"),
        ({"proxyServiceUrl": "nonsense"}, "Illegal proxy service url"),
        ({"proxyProtocol": "XX"}, "proxyProtocol: expected SNI"),
        ({"authenticationPlugin": {"a": 1}}, "authenticationPlugin: expected a text"),
        ({"brokerClientTlsEnabled": "maybe"}, "brokerClientTlsEnabled: expected true or false"),
        ({"peerClusterNames": "x"}, "peerClusterNames: expected a list of names"),
        ({"peerClusterNames": [str(n) for n in range(101)]}, "101 names, expected 100 at most"),
        ({"listenerName": "x" * CLUSTER_BYTES_MAX}, f"expected at most {CLUSTER_BYTES_MAX}"),
    ],
)
async def test_a_bad_description_is_refused(ask, body, text):
    await ask("PUT", f"{CLUSTERS}/known", {}, 200)
    for method, cluster in (("PUT", "bad"), ("POST", "known")):
        answer = await ask(method, f"{CLUSTERS}/{cluster}", body, 400)
        assert text is None or text in answer.json["reason"]
    await ask("GET", f"{CLUSTERS}/bad", status=404)
    assert (await ask("GET", f"{CLUSTERS}/known")).json == SWITCHES


async def test_a_slow_pattern_of_addresses_is_checked_in_one_pass(ask):
    await ask("PUT", OTHER, {"serviceUrl": "http://" + "a" * 1_000_000 + " "}, 400)


async def test_numbers_and_switches_are_taken_for_texts(ask):
    body = {"listenerName": 5, "authenticationPlugin": True, "brokerClientTlsEnabled": "True"}
    await ask("PUT", OTHER, {**body, "serviceUrl": "", "proxyServiceUrl": None}, 200)
    stored = {"listenerName": "5", "authenticationPlugin": "true", "brokerClientTlsEnabled": True}
    assert (await ask("GET", OTHER)).json == SWITCHES | stored


async def test_names_of_clusters(ask):
    for name in ("b%40d", "b%20d", "x" * 300):
        answer = await ask("PUT", f"{CLUSTERS}/{name}", ADDRESSES, 412)
        assert answer.json == {"reason": "Cluster name is not valid"}
    await ask("PUT", f"{CLUSTERS}/eu-1.a_b:c=d", ADDRESSES, 200)


@pytest.mark.limits(described_clusters=1)
async def test_the_number_of_clusters_is_limited(ask):
    await ask("PUT", OTHER, ADDRESSES, 200)
    await ask("PUT", f"{CLUSTERS}/more", ADDRESSES, 429)
    await ask("POST", OTHER, {}, 200)


async def test_fields_of_the_own_cluster_beside_its_addresses_are_stored(ask):
    addresses = (await ask("GET", OWN, headers=HOST)).json
    assert addresses == {"serviceUrl": "http://h:8080"} | SWITCHES
    await ask("POST", OWN, {**addresses, "authenticationPlugin": "p"}, 200, headers=HOST)
    shown = addresses | {"authenticationPlugin": "p"}
    assert (await ask("GET", OWN, headers=HOST)).json == shown
    await ask("POST", OWN, {"serviceUrl": "http://x:1"}, 501, headers=HOST)
    await ask("POST", OWN, {}, 200, headers=HOST)
    assert (await ask("GET", OWN, headers=HOST)).json == addresses
    await ask("DELETE", OWN, status=501)
    assert (await ask("GET", CLUSTERS)).json == ["standalone"]


async def test_peers_of_a_cluster(ask):
    peers = f"{OWN}/peers"
    await ask("PUT", OTHER, ADDRESSES, 200)
    assert (await ask("GET", peers, status=200)).body == b""
    await ask("POST", peers, ["other", "other"], 204)
    assert (await ask("GET", peers)).json == ["other"]
    assert (await ask("GET", OWN)).json["peerClusterNames"] == ["other"]
    for names, text in (
        (["nowhere"], "Peer cluster nowhere does not exist"),
        (["standalone"], "standalone itself can't be part of peer-list"),
    ):
        assert (await ask("POST", peers, names, 412)).json == {"reason": text}
    await ask("POST", peers, "other", 400)
    assert (await ask("GET", peers)).json == ["other"]
    await ask("POST", peers, [], 204)
    assert (await ask("GET", peers)).json == []
    await ask("POST", peers, status=204)
    assert (await ask("GET", peers, status=200)).body == b""
    await ask("POST", f"{OTHER}/peers", ["standalone"], 204)
    shown = ADDRESSES | SWITCHES | {"peerClusterNames": ["standalone"]}
    assert (await ask("GET", OTHER)).json == shown
    for method, body in (("GET", None), ("POST", ["other"])):
        answer = await ask(method, f"{CLUSTERS}/nowhere/peers", body, 404)
        assert answer.json == {"reason": "Cluster does not exist"}


async def test_the_move_of_another_clusters_clients_is_stored_alone(ask):
    await ask("PUT", OTHER, ADDRESSES, 200)
    for cluster in (OTHER, OWN, f"{CLUSTERS}/nowhere"):
        answer = await ask("GET", f"{cluster}/migrate", status=404)
        assert answer.json == {"reason": "Cluster does not exist"}
    moved = {"serviceUrl": "http://x:1", "brokerServiceUrl": "pulsar://y:1"}
    await ask("POST", f"{OTHER}/migrate?migrated=true", moved, 200)
    shown = {"migrated": True, "migratedClusterUrl": {**moved, "empty": False}}
    assert (await ask("GET", f"{OTHER}/migrate")).json == shown
    await ask("POST", OTHER, {}, 200)
    assert (await ask("GET", OTHER)).json == SWITCHES
    assert (await ask("GET", f"{OTHER}/migrate")).json == shown
    await ask("POST", f"{OTHER}/migrate", {}, 200)
    shown = {"migrated": False, "migratedClusterUrl": {"empty": True}}
    assert (await ask("GET", f"{OTHER}/migrate")).json == shown
    await ask("POST", f"{OTHER}/migrate?migrated=true", status=400)
    await ask("POST", f"{OWN}/migrate?migrated=true", moved, 501)
    await ask("POST", f"{CLUSTERS}/nowhere/migrate?migrated=true", moved, 404)


async def test_failure_domains_of_other_clusters(ask):
    await ask("PUT", OTHER, ADDRESSES, 200)
    for name in ("other", "nowhere"):
        assert (await ask("GET", f"{CLUSTERS}/{name}/failureDomains", status=200)).json == {}
    await ask("GET", f"{OTHER}/failureDomains/rack", status=404)
    answer = await ask("GET", f"{CLUSTERS}/nowhere/failureDomains/rack", status=412)
    assert answer.json == {"reason": "Cluster nowhere does not exist."}
    await ask("POST", f"{OTHER}/failureDomains/rack", {"brokers": ["x:1"]}, 501)


async def test_a_tenant_may_use_known_clusters(ask):
    refusals = [
        (None, "TenantInfo is null"),
        ({}, "Clusters cannot be null"),
        ({"allowedClusters": []}, "Clusters cannot be empty or blank"),
        ({"allowedClusters": [" "]}, "Clusters cannot be empty or blank"),
        ({"allowedClusters": ["standalone", "other"]}, "Clusters do not exist"),
    ]
    for body, text in refusals:
        for method, tenant in (("PUT", TENANT), ("POST", f"{ADMIN}/tenants/public")):
            assert (await ask(method, tenant, body, 412)).json == {"reason": text}
    await ask("PUT", OTHER, ADDRESSES, 200)
    both = {"adminRoles": ["a"], "allowedClusters": ["standalone", "other"]}
    await ask("PUT", TENANT, both, 204)
    assert (await ask("GET", TENANT)).json == both
    assert (await ask("GET", f"{ADMIN}/tenants/public")).json["allowedClusters"] == ["standalone"]
    await ask("PUT", SPACE, status=204)
    answer = await ask("POST", TENANT, {"allowedClusters": ["other"]}, 412)
    text = "Cannot remove cluster standalone from tenant bank: namespace bank/cash"
    assert answer.json == {"reason": f"{text} still has it as a replication cluster"}
    await ask("DELETE", SPACE, status=204)
    await ask("POST", TENANT, {"allowedClusters": ["other"]}, 204)
    answer = await ask("PUT", SPACE, status=403)
    text = "Cluster [standalone] is not in the list of allowed clusters list for tenant [bank]"
    assert answer.json == {"reason": text}
    await ask("DELETE", OTHER, status=204)
    assert (await ask("GET", TENANT)).json["allowedClusters"] == ["other"]


async def test_replication_is_refused_where_it_would_begin(ask):
    await ask("PUT", OTHER, ADDRESSES, 200)
    await ask("PUT", f"{CLUSTERS}/third", ADDRESSES, 200)
    await ask("PUT", TENANT, {"allowedClusters": ["standalone", "other"]}, 204)
    for clusters, status in (
        (["third"], 403),
        (["nowhere"], 403),
        (["other"], 501),
        (["standalone", "other"], 501),
        (["standalone"], 204),
    ):
        first = clusters[0]  # As `pulsar-admin` sends.
        body = {"replication_clusters": clusters, "clusterThatCanDeleteNamespace": first}
        await ask("PUT", SPACE, body, status)
    topic = f"{ADMIN}/persistent/bank/cash/t"
    await ask("PUT", topic, status=204)
    for path, accepted in ((f"{SPACE}/replication", 200), (f"{topic}/replication", 204)):
        await ask("POST", path, ["standalone", "other"], 501)
        await ask("POST", path, ["standalone", "third"], 403)
        await ask("POST", path, [], 412)
        await ask("POST", path, "standalone", 400)
        await ask("POST", path, ["standalone"], accepted)
    answer = await ask("POST", f"{SPACE}/replication", ["nowhere"], 403)
    assert answer.json == {"reason": "Invalid cluster id: nowhere"}
    answer = await ask("POST", f"{topic}/replication", ["other"], 412)
    assert answer.json["reason"].startswith("Can not remove local cluster")
    assert (await ask("GET", f"{SPACE}/replication")).json == ["standalone"]


async def test_a_namespace_allows_clusters_of_its_tenant(ask):
    await ask("PUT", OTHER, ADDRESSES, 200)
    await ask("PUT", TENANT, {"allowedClusters": ["standalone", "other"]}, 204)
    both = ["standalone", "other"]
    await ask("PUT", SPACE, {"allowed_clusters": both}, 204)
    path = f"{SPACE}/allowedClusters"
    assert (await ask("GET", path)).json == both
    await ask("POST", path, ["standalone"], 200)
    assert (await ask("GET", SPACE)).json["allowed_clusters"] == ["standalone"]
    for clusters, status in ((["other"], 400), ([], 400), (["nowhere"], 403), (None, 400)):
        await ask("POST", path, clusters, status)
    assert (await ask("GET", path)).json == ["standalone"]
    await ask("PUT", f"{ADMIN}/namespaces/bank/more", {"allowed_clusters": ["nowhere"]}, 403)
    assert (await ask("GET", f"{ADMIN}/namespaces/public/default/allowedClusters")).json == []


async def test_secrets_are_shown_to_administrators_alone(ask, broker):
    await ask("PUT", OTHER, WHOLE, 200)
    broker.access = Access(Nothing(Action.DESCRIBE))
    shown = (await ask("GET", OTHER, status=200)).json
    assert WHOLE.keys() - shown.keys() == {
        "authenticationParameters",
        "brokerClientTlsTrustStorePassword",
        "brokerClientTlsKeyStorePassword",
        "brokerClientSslFactoryPluginParams",
    }
    await ask("POST", OTHER, {}, 403)


@pytest.mark.parametrize("dies", [False, True])
async def test_clusters_survive_a_restart(tmp_path, dies):
    async with running(tmp_path, dies=dies) as ask:
        await ask("PUT", OTHER, WHOLE)
        await ask("PUT", f"{CLUSTERS}/gone", ADDRESSES)
        await ask("POST", f"{OWN}/peers", ["other"], 204)
        await ask("PUT", TENANT, {"allowedClusters": ["other"]}, 204)
        await ask("DELETE", f"{CLUSTERS}/gone", status=204)
    async with running(tmp_path, dies=dies) as ask:
        assert (await ask("GET", CLUSTERS)).json == ["other", "standalone"]
        assert (await ask("GET", OTHER)).json == WHOLE
        assert (await ask("GET", f"{OWN}/peers")).json == ["other"]
        assert (await ask("GET", TENANT)).json["allowedClusters"] == ["other"]
