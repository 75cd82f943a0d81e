"""Rows of HTTP: every path with each of its methods (docs/api.md)."""

import json
from collections.abc import Iterator

from braidlog.protocols.http.examples import EXAMPLES
from braidlog.protocols.http.management.exports import ExportRun
from braidlog.protocols.http.pulsar_admin import absent
from braidlog.protocols.http.pulsar_admin.policies import Policy
from braidlog.protocols.http.pulsar_admin.policy_table import POLICIES
from conformance.hostile.mutation import HTTP
from conformance.hostile.rows import TOPIC, CommandRow, ConnectionKind, Protocol
from conformance.policy_samples import policy_body

API, ADMIN = "/api/v1", "/admin/v2"
PLACE = f"public/default/{TOPIC}"
MADE = f"public/default/{TOPIC}-http"  # Created and deleted by these rows.
PIP64, KEEP = f"/topics/{PLACE}", f"{ADMIN}/persistent/{PLACE}"
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "int"]}]}
MESSAGES = [
    {"key": "k", "value": "v", "properties": {"a": "b"}, "eventTime": 1, "sequenceId": 7},
    {
        "value": "dg==",
        "encoding": "base64",
        "key": "aw==",
        "key_encoding": "base64",
        "partition": 0,
    },
]
IMPORTED = [
    {"key": "aw==", "key_encoding": "base64", "value": None, "partition": 0, "publish_us": 1},
    {"value": "v", "headers": [{"name": "n", "value": "AQ==", "encoding": "base64", "kind": 3}]},
]
AVRO = {"schema_type": "AVRO", "value_schema": {"type": "AVRO", "schema": SCHEMA}}
PLACE_IN_LOG = {"ledgerId": 1, "entryId": 0, "partitionIndex": -1}
Row = tuple[str, str, object]


def _health() -> Iterator[Row]:
    for path in ("/healthz", "/readyz", "/metrics", "/metrics/", "/openapi.json", "/docs"):
        yield "GET", path, None
    yield "GET", f"{API}/connections?limit=2&after=1", None
    yield "GET", f"{API}/topics/{PLACE}/writers?limit=2&after=1", None
    yield "GET", f"{API}/stats", None
    yield "GET", f"{API}/history", None
    yield "GET", f"{API}/brokers", None
    yield "GET", f"{API}/audit?limit=2&before=17-65536&event=login&refused=true&contains=a", None
    yield "GET", f"{API}/config", None
    yield "GET", f"{API}/http-consumers?limit=2&after=a&topic=orders", None
    yield "GET", f"{API}/exports", None
    yield "POST", f"{API}/exports", EXAMPLES[ExportRun]
    yield "GET", f"{API}/topics?limit=2&after=1&sort=size", None
    yield "GET", f"{API}/groups?limit=2&after=1&sort=lag&ages=true", None
    yield "OPTIONS", f"{API}/topics", None
    yield "HEAD", f"{API}/topics", None


def _messages() -> Iterator[Row]:
    yield "POST", PIP64, {"messages": MESSAGES}
    yield "POST", PIP64, {**AVRO, "messages": [{"value": {"a": {"int": 7}}}]}
    yield "POST", f"{PIP64}/partitions/0", {"messages": MESSAGES, "schema_type": "STRING"}
    yield "POST", f"/topics/persistent/{PLACE}", {"messages": MESSAGES}
    for query in (
        "position=earliest&max_messages=10&timeout=0",
        "position=0&max_bytes=1000&include_schema=true&int64=string&timeout=1",
        "message_id=CAEQABgB&encoding=base64&timeout=0",
        "timestamp=1700000000000&schema_type=STRING&timeout=0",
        "position=earliest&exact=true&timeout=0",
    ):
        yield "GET", f"{PIP64}/partitions/0/messages?{query}", None
    base = f"{PIP64}/subscription/hostile"
    yield "POST", base, {"initial_position": "Earliest", "subscription_type": "Shared"}
    yield "POST", f"{base}/consumers", {"consumer_name": "c"}
    yield "GET", f"{base}/consumer/no-such/messages?timeout=0", None
    yield "DELETE", f"{base}/consumers/no-such", None
    yield "GET", f"{base}/cursor", None
    for kind in ("Individual", "Cumulative", "Nack"):
        yield "POST", f"{base}/cursor", {"type": kind, "messageIds": ["CAEQABgB"]}
    yield "POST", f"{base}/cursor", {"type": "Seek", "position": "earliest"}
    yield "GET", "/topics/non-persistent/public/default/x", None


def _managing() -> Iterator[Row]:
    yield "GET", f"{API}/topics?limit=2&after=public/default/a&namespace=public/default", None
    yield "GET", f"{API}/topics/{PLACE}", None
    yield "PUT", f"{API}/topics/{MADE}", {"partitions": 2, "settings": {"durability": "written"}}
    yield "PATCH", f"{API}/topics/{MADE}", {"settings": {"retention_ms": 9}, "partitions": 3}
    yield "POST", f"{API}/topics/{PLACE}/messages", {"messages": IMPORTED}
    yield "DELETE", f"{API}/topics/{MADE}", None
    yield "GET", f"{API}/groups?topic={PLACE}&group=s&encoding=base64", None
    yield "GET", f"{API}/groups/{PLACE}/s", None
    yield "PUT", f"{API}/groups/{PLACE}/s/positions", {"positions": {"0": 17}}
    yield "DELETE", f"{API}/groups/{PLACE}/s?force=true", None
    yield "GET", f"{API}/log", None
    yield "GET", f"{API}/log/{PLACE}/0", None
    yield "GET", f"{API}/log/{PLACE}/0/batches?offset=0&max_bytes=65536", None
    yield "GET", f"{API}/users", None
    yield "GET", f"{API}/users/hostile", None
    yield "PUT", f"{API}/users/hostile", {"roles": ["r"]}
    yield "PATCH", f"{API}/users/hostile", {"roles": ["r", "s"]}
    yield "DELETE", f"{API}/users/hostile", None
    yield "PUT", f"{API}/users/hostile/tokens/t", {"expires_us": 1_900_000_000_000_000}
    yield "DELETE", f"{API}/users/hostile/tokens/t", None
    right = {"subject": "hostile", "action": "consume", "resource": f"topic {PLACE}"}
    yield "GET", f"{API}/permissions?subject=hostile", None
    yield "POST", f"{API}/permissions", right
    query = f"action=consume&resource=topic%20{PLACE}"
    yield "DELETE", f"{API}/permissions?subject=hostile&{query}", None
    yield "GET", f"{API}/permissions/test?user=hostile&{query}", None


def _admin() -> Iterator[Row]:
    for path in ("clusters", "clusters/standalone", "brokers/health", "brokers/ready"):
        yield "GET", f"{ADMIN}/{path}", None
    runtime = "brokers/configuration/runtime"
    for path in ("brokers/version", "brokers/standalone", runtime, "tenants", "tenants/public"):
        yield "GET", f"{ADMIN}/{path}", None
    for path in ("", "/backlog-quota-check", "/configuration", "/configuration/values"):
        yield "GET", f"{ADMIN}/brokers{path}", None
    for path in ("brokers/leaderBroker", "clusters/standalone/peers"):
        yield "GET", f"{ADMIN}/{path}", None
    yield "GET", f"{ADMIN}/clusters/standalone/failureDomains", None
    yield from _clusters()
    yield "GET", f"/lookup/v2/topic/persistent/{PLACE}", None
    yield "PUT", f"{ADMIN}/tenants/hostile", {"allowedClusters": ["standalone"]}
    yield "DELETE", f"{ADMIN}/tenants/hostile", None
    yield "GET", f"{ADMIN}/namespaces/public", None
    yield "PUT", f"{ADMIN}/namespaces/public/hostile-http", {"bundles": {"numBundles": 3}}
    yield "GET", f"{ADMIN}/namespaces/public/hostile-http", None
    yield "DELETE", f"{ADMIN}/namespaces/public/hostile-http", None
    yield "GET", f"{ADMIN}/namespaces/public/default/topics", None
    yield "GET", f"{ADMIN}/persistent/public/default", None
    yield "GET", f"{ADMIN}/persistent/public/default/partitioned", None
    topic = f"{ADMIN}/persistent/{MADE}"
    yield "PUT", topic, None
    yield "DELETE", f"{topic}?force=true", None
    yield "GET", f"{KEEP}/partitions", None
    yield "PUT", f"{topic}-p/partitions", 2
    yield "POST", f"{topic}-p/partitions", 3
    yield "DELETE", f"{topic}-p/partitions", None
    for path in ("stats", "partitioned-stats", "internalStats", "lastMessageId", "subscriptions"):
        yield "GET", f"{KEEP}/{path}", None
    yield "GET", f"{KEEP}/messageid/1700000000000", None
    yield "GET", f"{KEEP}/ledger/1/entry/0", None
    yield "GET", f"{KEEP}/examinemessage?initialPosition=earliest&messagePosition=2", None
    base = f"{KEEP}/subscription/hostile-admin"
    yield "PUT", base, PLACE_IN_LOG
    yield "DELETE", base, None
    yield "POST", f"{base}/resetcursor", PLACE_IN_LOG
    yield "POST", f"{base}/resetcursor/1700000000000", None
    yield "POST", f"{base}/skip/1", None
    yield "POST", f"{base}/skip_all", None
    yield "GET", f"{base}/position/1", None
    yield from _non_persistent()
    yield from _admin_of_namespaces()
    yield from _admin_of_topics()
    yield "POST", f"{KEEP}/subscription/hostile-admin/expireMessages/1000000", None
    yield "PUT", f"{KEEP}/unload", None
    yield "PUT", f"{ADMIN}/persistent/{MADE}/compaction", None
    yield "GET", f"{ADMIN}/persistent/{MADE}/compaction", None
    schemas = f"{ADMIN}/schemas/{PLACE}"
    posted = {"type": "AVRO", "schema": json.dumps(SCHEMA), "properties": {}}
    yield "GET", f"{schemas}/schema", None
    yield "POST", f"{schemas}/schema", posted
    yield "DELETE", f"{schemas}/schema", None
    yield "GET", f"{schemas}/schema/0", None
    yield "GET", f"{schemas}/schemas", None
    yield "POST", f"{schemas}/compatibility", posted
    yield "GET", f"{ADMIN}/no-such", None


def _non_persistent() -> Iterator[Row]:
    """Yield non-persistent topics."""
    topic = f"{ADMIN}/non-persistent/{MADE}"
    yield "GET", f"{ADMIN}/non-persistent/public/default", None
    yield "GET", f"{ADMIN}/non-persistent/public/default/partitioned", None
    yield "GET", f"/lookup/v2/topic/non-persistent/{MADE}", None
    yield "PUT", topic, None
    for path in ("stats", "internalStats", "subscriptions", "partitions"):
        yield "GET", f"{topic}/{path}", None
    yield "DELETE", f"{topic}/subscription/s?force=true", None
    yield "GET", f"{topic}/lastMessageId", None
    yield "PUT", f"{topic}/unload", None
    yield "DELETE", f"{topic}?force=true", None
    yield "PUT", f"{topic}-p/partitions", 2
    yield "POST", f"{topic}-p/partitions", 3
    yield "GET", f"{topic}-p/partitioned-stats?perPartition=true", None
    yield "DELETE", f"{topic}-p/partitions", None


def _admin_of_namespaces() -> Iterator[Row]:
    """Yield jobs and properties of a namespace in Pulsar's admin API."""
    namespace = f"{ADMIN}/namespaces/public/hostile-http"
    for path in ("bundles", "properties", "property/team", "replication"):
        yield "GET", f"{namespace}/{path}", None
    yield "PUT", f"{namespace}/properties", {"team": "blue"}
    yield "PUT", f"{namespace}/property/team/blue", None
    yield "DELETE", f"{namespace}/property/team", None
    yield "DELETE", f"{namespace}/properties", None
    yield "POST", f"{namespace}/replication", ["standalone"]
    for place in (namespace, f"{namespace}/0x00000000_0xffffffff"):
        yield "POST", f"{place}/clearBacklog", None
        yield "POST", f"{place}/clearBacklog/hostile", None
        yield "POST", f"{place}/unsubscribe/hostile", None
    yield "PUT", f"{namespace}/0x00000000_0xffffffff/unload", None
    yield "GET", f"{namespace}/0x00000000_0xffffffff/topicHashPositions?topics=a,b", None
    cluster = f"{ADMIN}/clusters/standalone"
    yield "POST", cluster, {"serviceUrl": "http://broker", "brokerServiceUrl": ""}
    yield "DELETE", cluster, None
    for method in ("GET", "DELETE"):
        yield method, f"{cluster}/failureDomains/rack", None
    yield "GET", f"{ADMIN}/brokers/standalone/broker/ownedNamespaces", None
    for end in ("broker-stats/topics", "broker-stats/metrics", "broker-stats/load-report"):
        yield "GET", f"{ADMIN}/{end}", None
    for end in ("all", "racks-info"):
        yield "GET", f"{ADMIN}/bookies/{end}", None
    roles = f"{namespace}/permissions/subscription"
    yield "GET", roles, None
    yield "POST", f"{roles}/hostile-admin", ["hostile", "role:hostile"]
    yield "DELETE", f"{namespace}/permissions/hostile-admin/hostile", None


def _admin_of_topics() -> Iterator[Row]:
    """Yield properties and state of a topic and of its subscriptions in Pulsar's admin API."""
    for path in ("internal-info", "partitioned-internalStats", "properties", "replication"):
        yield "GET", f"{KEEP}/{path}", None
    yield "PUT", f"{KEEP}/properties", {"team": "blue"}
    yield "DELETE", f"{KEEP}/properties?key=team", None
    yield "POST", f"{KEEP}/replication", ["standalone"]
    yield "DELETE", f"{KEEP}/replication", None
    yield "POST", f"{KEEP}/createMissedPartitions", None
    yield "POST", f"{ADMIN}/persistent/{MADE}/trim", None
    yield "PUT", f"{KEEP}/backlogSize", PLACE_IN_LOG
    base = f"{KEEP}/subscription/hostile-admin"
    yield "GET", f"{base}/properties", None
    yield "PUT", f"{base}/properties", {"team": "blue"}
    yield "POST", f"{base}/analyzeBacklog", PLACE_IN_LOG
    rate = {"dispatchThrottlingRateInMsg": 1000, "relativeToPublishRate": True}
    for method, body in (("POST", rate), ("GET", None), ("DELETE", None)):
        yield method, f"{KEEP}/hostile-admin/dispatchRate", body
    yield "POST", f"{base}/expireMessages", PLACE_IN_LOG
    yield "POST", f"{KEEP}/all_subscription/expireMessages/1000000", None
    schemas = f"{ADMIN}/schemas/{PLACE}"
    yield "GET", f"{schemas}/metadata", None
    yield "POST", f"{schemas}/version", {"type": "STRING", "schema": "", "properties": {}}
    for domain in ("persistent", "non-persistent"):
        yield "GET", f"/lookup/v2/topic/{domain}/{PLACE}/bundle", None


def _spellings() -> Iterator[Row]:
    """Yield other spellings of paths: with the domain, in the plural and the singular."""
    for topic in (PIP64, f"/topics/persistent/{PLACE}"):
        yield "GET", f"{topic}/partitions/0/messages?timeout=0", None
        yield "POST", f"{topic}/partitions/0", {"messages": MESSAGES}
        for subscription in (f"{topic}/subscription/hostile", f"{topic}/subscriptions/hostile"):
            yield "POST", subscription, {"name": "c"}
            yield "POST", f"{subscription}/consumers", {"id": "c"}
            yield "GET", f"{subscription}/cursor", None
            yield "POST", f"{subscription}/cursor", {"type": "Cumulative", "messageIds": ["CAEQAA"]}
            for consumer in (f"{subscription}/consumer/c", f"{subscription}/consumers/c"):
                yield "GET", f"{consumer}/messages?timeout=0&max_messages=2", None
                yield "DELETE", consumer, None


def _clusters() -> Iterator[Row]:
    """Yield calls about the own cluster and about another cluster."""
    described = {
        "serviceUrl": "http://broker:8080",
        "brokerServiceUrlTls": "pulsar+ssl://broker:6651",
        "proxyServiceUrl": "pulsar://proxy:4080",
        "proxyProtocol": "SNI",
        "authenticationParameters": "token:secret",
        "peerClusterNames": ["standalone"],
        "brokerClientTlsEnabled": True,
    }
    for name in ("hostile", "standalone"):
        cluster = f"{ADMIN}/clusters/{name}"
        yield "PUT", cluster, described
        yield "GET", cluster, None
        yield "POST", cluster, described
        yield "POST", f"{cluster}/peers", ["standalone", "hostile"]
        yield "POST", f"{cluster}/migrate?migrated=true", {"serviceUrl": "http://broker:8080"}
        yield "GET", f"{cluster}/migrate", None
        yield "GET", f"{cluster}/failureDomains/rack", None
        yield "DELETE", cluster, None
    namespace = f"{ADMIN}/namespaces/public/hostile-http"
    yield "GET", f"{namespace}/allowedClusters", None
    yield "POST", f"{namespace}/allowedClusters", ["standalone"]
    yield "POST", f"{namespace}/replication", ["standalone", "hostile"]
    yield "POST", f"{KEEP}/replication", ["standalone", "hostile"]


def _call_of(policy: Policy, method: str, path: str, *, is_topic: bool) -> Row:
    """Return a call with content that the policy understands."""
    if method == "GET":
        return method, f"{path}?applied=true", None
    query = [f"{name}=destination_storage" for name in policy.query]
    body = None if method == "DELETE" else policy_body(policy)
    if is_topic and policy.topic_query and method != "DELETE":
        query.append(f"{policy.topic_query}={body}")
        body = None
    return method, "?".join(filter(None, (path, "&".join(query)))), body


def _policies() -> Iterator[Row]:
    """Yield settings of a namespace or a topic in Pulsar's admin API."""
    named = f"{ADMIN}/persistent/{MADE}"
    topics = (named, f"{ADMIN}/non-persistent/{MADE}")
    namespace = f"{ADMIN}/namespaces/public/hostile-http"
    for place in (*topics, namespace):
        for policy in POLICIES:
            for path, methods in policy.calls(is_topic=place in topics):
                for method in methods:
                    yield _call_of(policy, method, f"{place}/{path}", is_topic=place in topics)
        yield "GET", f"{place}/permissions", None
        yield "POST", f"{place}/permissions/hostile", ["consume", "produce"]
        yield "DELETE", f"{place}/permissions/hostile", None
    yield "PUT", f"{named}/unload", None
    yield "PUT", f"{namespace}/unload", None
    yield "DELETE", f"{named}/truncate", None
    yield "POST", f"{KEEP}/subscription/hostile-admin/expireMessages/3600", None
    yield "POST", f"{named}/terminate", None
    yield "POST", f"{named}/terminate/partitions", None
    yield "POST", f"{ADMIN}/tenants/hostile", {"allowedClusters": ["standalone"]}


def _absent() -> Iterator[Row]:
    """Yield settings that nothing has."""
    namespace = f"{ADMIN}/namespaces/public/hostile-http"
    for place, shown, removed in (
        (namespace, absent.OF_NAMESPACES, absent.REMOVED_FROM_NAMESPACES),
        (KEEP, absent.OF_TOPICS, absent.REMOVED_FROM_TOPICS),
    ):
        ends = {end: f"{place}/{end}".format(subscription="hostile-admin") for end in shown}
        yield from (("GET", path, None) for path in ends.values())
        yield from (("DELETE", ends.get(end, f"{place}/{end}"), None) for end in removed)
    accepted = {namespace: absent.SETTABLE_ON_NAMESPACES, KEEP: absent.SETTABLE_ON_TOPICS}
    for place, values in accepted.items():
        for end, value in values.items():
            yield "POST", f"{place}/{end}".format(subscription="hostile-admin"), value
    yield "GET", f"{KEEP}/{absent.REPLICATED}".format(subscription="hostile-admin"), None
    yield "DELETE", f"{ADMIN}/persistent/{MADE}/policies", None
    yield "GET", f"{ADMIN}/brokers/internal-configuration", None


def _unserved() -> Iterator[Row]:
    """Yield refused paths of Pulsar, with every method."""
    for method in ("DELETE", "GET", "PATCH", "POST", "PUT"):
        for path in (
            f"{ADMIN}/no/such",
            "/lookup/no/such",
            "/topics/non-persistent/public/default/x",
        ):
            yield method, path, {}
        yield method, f"{ADMIN}/non-persistent/{PLACE}/no/such", {}


def request(method: str, path: str, body: object, *more: str) -> bytes:
    """Return a whole request."""
    data = b"" if body is None else json.dumps(body).encode()
    head = [f"{method} {path} HTTP/1.1", "Host: broker", "Content-Type: application/json", *more]
    head.append(f"Content-Length: {len(data)}")
    return "\r\n".join((*head, "", "")).encode() + data


def _commands() -> Iterator[CommandRow]:
    for rows in (_health, _messages, _spellings, _managing, _admin, _policies, _absent, _unserved):
        for method, path, body in rows():
            yield CommandRow(f"{method} {path}", request(method, path, body))
    yield from _websockets()
    yield from _headers()


def _headers() -> Iterator[CommandRow]:
    """Yield requests with the headers that the listener reads."""
    read = f"{PIP64}/partitions/0/messages?timeout=0"
    scraper = (
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
        'text/plain;version="0.0.4";q=0.3,*/*;q=0.2'
    )
    basic, token = "Basic aG9zdGlsZTpwYXNzd29yZA==", "Bearer eyJhbGciOiJIUzI1NiJ9.e30.AAAA"
    for method, path, body, header in (
        ("GET", read, None, "Accept: text/event-stream"),
        ("GET", read, None, "Accept: application/x-ndjson"),
        ("GET", read, None, "Last-Event-ID: CAEQABgB"),
        ("GET", "/metrics", None, f"Accept: {scraper}"),
        ("GET", f"{API}/users", None, f"Authorization: {basic}"),
        ("GET", f"{API}/users", None, f"Authorization: {token}"),
        ("POST", PIP64, {"messages": MESSAGES}, "Content-Encoding: identity"),
        ("POST", PIP64, {"messages": MESSAGES}, "Expect: 100-continue"),
        ("POST", "/ui/topics", {}, "Origin: http://broker"),
        ("POST", "/ui/topics", {}, "Sec-Fetch-Site: same-origin"),
    ):
        yield CommandRow(f"{method} {path}, {header}", request(method, path, body, header))


def _frame(opcode: int, payload: bytes) -> bytes:
    """Return a WebSocket frame of a client; its mask changes nothing."""
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe"
    if len(payload) >= 126:
        size += len(payload).to_bytes(2, "big")
    return bytes([0x80 | opcode]) + size + bytes(4) + payload


def _websockets() -> Iterator[CommandRow]:
    """Openings with frames behind them: each connection ends with a close frame."""
    upgrade = (
        *("Connection: Upgrade", "Upgrade: websocket"),
        *("Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="),
    )
    nack = {"type": "negativeAcknowledge", "messageId": "CAEQAA=="}
    texts: dict[str, list[object]] = {
        f"producer/persistent/{PLACE}?hashingScheme=Murmur3_32Hash": [
            {"payload": "dg==", "properties": {"a": "b"}, "key": "k", "context": "1"},
            {"payload": "dg==", "eventTime": "2020-01-02T03:04:05.678Z", "deliverAfterMs": 1},
        ],
        f"consumer/persistent/{PLACE}/ws?subscriptionType=Shared&pullMode=true": [
            {"type": "permit", "permitMessages": 3},
            {"messageId": "CAEQAA=="},
            nack,
            {"type": "isEndOfTopic"},
            {"type": "unsubscribe"},
        ],
        f"consumer/persistent/{PLACE}/ws2?maxRedeliverCount=1&ackTimeoutMillis=1000": [nack],
        f"reader/persistent/{PLACE}?messageId=earliest&receiverQueueSize=2": [{}, {}],
        f"producer/non-persistent/{PLACE}": [],
        f"consumer/non-persistent/{PLACE}/ws": [],
        f"reader/non-persistent/{PLACE}": [],
    }
    for path, sent in texts.items():
        frames = b"".join(_frame(0x1, json.dumps(text).encode()) for text in sent)
        head = "\r\n".join((f"GET /ws/v2/{path} HTTP/1.1", "Host: broker", *upgrade, "", ""))
        ending = _frame(0x9, b"ping") + _frame(0x8, b"\x03\xe8")
        yield CommandRow(f"GET /ws/v2/{path}", head.encode() + frames + ending)


def protocol() -> Protocol:
    """Return the attack on the HTTP listener."""
    return Protocol("http", [ConnectionKind(HTTP, [], [], list(_commands()))])
