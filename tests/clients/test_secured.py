"""Stock clients at a broker with TLS and authentication: permitted clients work, others are
refused.

The broker is set up with `braidlog` itself, as in docs/security.md.
"""

import json
import logging
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import confluent_kafka
import jwt
import kafka.errors
import pulsar
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.net.sasl.oauth import AbstractTokenProvider

from conformance.clients.iggy import CLIENTS, NoClient, folder_of, python_of
from tests.broker.server.certificates import authority, client_context
from tests.clients.secured import HANG_S, TOKEN_SECRET

pytestmark = [pytest.mark.slow, pytest.mark.clients]
IGGY = next(client for client in CLIENTS if str(client) == "apache-iggy 0.8.0")
# For a send that a test expects to fail: enough time for the first send on a slow machine.
SEND_TIMEOUT_MS = 10_000
IGGY_CHILD = Path(__file__).with_name("iggy_secured_child.py")


def test_the_first_admins_password_file_is_private(secured):
    file = secured.running.data_dir / "admin-password"
    assert file.stat().st_mode & 0o777 == 0o600
    (admin,) = json.loads(secured.braidlog("users", "list", "--output", "json"))[:1]
    assert admin["name"] == "admin"
    secured.braidlog("users", "list", code=1, BRAIDLOG_PASSWORD="wrong")


def test_pulsar_clients_log_in_by_token_with_their_permissions(secured):
    token = secured.user("anna", ("produce", "public/default/letters"), ("create", "public/*"))
    client = secured.pulsar(token)
    producer = client.create_producer("letters")
    producer.send(b"hello")
    with pytest.raises(pulsar.AuthorizationError):
        client.subscribe("letters", "s")
    client.close()
    secured.braidlog("permissions", "grant", "anna", "consume", "public/default/letters@s")
    client = secured.pulsar(token)
    consumer = client.subscribe("letters", "s", initial_position=pulsar.InitialPosition.Earliest)
    assert consumer.receive(HANG_S * 1000).data() == b"hello"
    with pytest.raises(pulsar.AuthorizationError):
        client.subscribe("letters", "other")
    client.close()


def test_pulsar_clients_find_topics_over_https(secured):
    token = secured.user("hanna", ("admin", "public/default/looked-up"))
    client = secured.pulsar(token, scheme="https")
    consumer = client.subscribe("looked-up", "s")
    client.create_producer("looked-up").send(b"hello")
    assert consumer.receive(HANG_S * 1000).data() == b"hello"
    client.close()


def test_pulsar_clients_without_a_valid_token_are_refused(secured):
    token = secured.user("bert", ("admin", "public"))
    secured.braidlog("tokens", "revoke", "bert", "test", "--yes")
    for wrong in (None, token, "nonsense"):
        client = secured.pulsar(wrong, timeout_s=3)  # The client retries until then.
        with pytest.raises(pulsar.PulsarException):
            client.create_producer("refused")
        client.close()
    listed = json.loads(secured.braidlog("topics", "list", "--output", "json"))
    assert "public/default/refused" not in [topic["name"] for topic in listed]


def test_pulsar_clients_log_in_by_name_and_password(secured):
    password_file = secured.folder / "emil"
    password_file.write_text("right one\n")
    secured.braidlog("users", "create", "emil", "--password-file", str(password_file))
    secured.braidlog("permissions", "grant", "emil", "admin", "public/default/notes")
    client = secured.pulsar_by(pulsar.AuthenticationBasic("emil", "right one"))
    client.create_producer("notes").send(b"hello")
    client.close()
    client = secured.pulsar_by(pulsar.AuthenticationBasic("emil", "wrong"), timeout_s=3)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("notes")
    client.close()


def test_pulsar_clients_log_in_by_certificate(secured):
    secured.user("frida", ("admin", "public/default/cards"))
    client = secured.pulsar_by(pulsar.AuthenticationTLS(*secured.certificate("frida")))
    client.create_producer("cards").send(b"hello")
    with pytest.raises(pulsar.AuthorizationError):
        client.create_producer("letters")
    client.close()


def test_the_broker_asks_a_pulsar_client_for_a_fresh_token(secured):
    secured.braidlog("permissions", "grant", "gina", "admin", "public/default/tides")
    requests = threading.Semaphore(0)

    def fresh():
        requests.release()
        return jwt.encode({"sub": "gina", "exp": time.time() + 2}, TOKEN_SECRET, "HS256")

    client = secured.pulsar(fresh)
    producer = client.create_producer("tides")
    producer.send(b"before")
    while requests.acquire(blocking=False):
        pass
    assert requests.acquire(timeout=HANG_S), "the broker did not ask for a fresh token"
    producer.send(b"after")  # On the existing connection.
    client.close()


@pytest.mark.parametrize(
    "claims",
    [{"sub": "gina", "exp": 1}, {"sub": "gina", "nbf": 2**40}, {"sub": ""}, {}],
    ids=["expired", "not yet", "nobody", "no name"],
)
def test_invalid_signed_tokens_are_refused(secured, claims):
    client = secured.pulsar(jwt.encode(claims, TOKEN_SECRET, "HS256"), timeout_s=3)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("tides")
    client.close()


def test_librdkafka_logs_in_by_certificate_with_0_8_settings(secured):
    secured.user("hugo", ("admin", "public/default/boats"))
    secured.braidlog("topics", "create", "boats")
    certificate, key = secured.certificate("hugo")
    host, port = secured.running.address("kafka")
    settings = {
        "bootstrap.servers": f"{host}:{port}",
        "security.protocol": "ssl",
        "ssl.ca.location": secured.ca,
        "ssl.certificate.location": certificate,
        "ssl.key.location": key,
        "api.version.request": False,
        "broker.version.fallback": "0.8.2",
    }
    errors = []
    producer = confluent_kafka.Producer(settings)
    producer.produce("boats", b"hello", callback=lambda error, _: errors.append(error))
    assert producer.flush(HANG_S) == 0 and errors == [None]
    consumer = confluent_kafka.Consumer({**settings, "group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition("boats", 0, 0)])
    message = consumer.poll(HANG_S)
    assert message.error() is None and message.value() == b"hello"
    consumer.close()


def test_iggy_clients_log_in_over_tls_by_password_and_token(secured):
    token = secured.user("ida", ("admin", "public/shop"))
    port = secured.running.address("iggy")[1]
    try:
        environment = {"PYTHONPATH": str(folder_of(IGGY))}
        python = python_of(IGGY)
    except NoClient as reason:
        pytest.skip(str(reason))

    def run(credentials):
        url = f"iggy+tcp://{credentials}@localhost:{port}?tls=true&tls_domain=localhost"
        done = subprocess.run(
            [python, IGGY_CHILD, f"{url}&tls_ca_file={secured.ca}"],
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert run(f"admin:{secured.environment['BRAIDLOG_PASSWORD']}") == "made read"
    assert run(token) == "found read"
    assert run("admin:wrong") == "refused"
    assert run("x" * 50) == "refused"


def test_kafka_clients_have_the_principal_of_their_certificate(secured):
    secured.user("carl", ("admin", "public/default/parcels"))
    secured.braidlog("topics", "create", "parcels")
    producer = KafkaProducer(**secured.kafka("carl"))
    producer.send("parcels", b"hello").get(HANG_S)
    producer.close()
    consumer = KafkaConsumer(auto_offset_reset="earliest", **secured.kafka("carl"))
    consumer.assign([TopicPartition("parcels", 0)])
    assert next(iter(consumer)).value == b"hello"
    consumer.close()


def test_kafka_clients_without_credentials_are_refused(secured):
    producer = KafkaProducer(max_block_ms=3000, **secured.kafka())
    with pytest.raises(kafka.errors.KafkaError):
        producer.send("sealed", b"x").get(HANG_S)
    producer.close()


class Token(AbstractTokenProvider):
    """kafka-python's source of tokens."""

    def __init__(self, token):
        super().__init__()
        self._token = token

    def token(self):
        return self._token


SASL = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


@pytest.mark.parametrize("mechanism", SASL)
def test_kafka_python_logs_in_by_sasl(secured, mechanism):
    password, token = secured.shipper
    common = secured.kafka() | {"security_protocol": "SASL_SSL", "sasl_mechanism": mechanism}
    del common["api_version"]
    if mechanism == "OAUTHBEARER":
        right = {"sasl_oauth_token_provider": Token(token)}
        wrong = {"sasl_oauth_token_provider": Token("nonsense")}
    else:
        right = {"sasl_plain_username": "shipper", "sasl_plain_password": password}
        wrong = right | {"sasl_plain_password": "wrong"}
    producer = KafkaProducer(**common, **right)
    assert producer.send("freight", b"x").get(HANG_S).offset >= 0
    producer.close()
    with pytest.raises(kafka.errors.KafkaError):  # The library retries until then.
        KafkaProducer(bootstrap_timeout_ms=1000, **common, **wrong)


@pytest.mark.parametrize("mechanism", SASL)
def test_confluent_kafka_logs_in_by_sasl(secured, mechanism):
    password, token = secured.shipper
    host, port = secured.running.address("kafka")
    common = {
        "bootstrap.servers": f"{host}:{port}",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "ssl.ca.location": secured.ca,
    }

    def metadata(secret):
        if mechanism == "OAUTHBEARER":
            login = {"oauth_cb": lambda _: (secret, 2**33)}
        else:
            login = {"sasl.username": "shipper", "sasl.password": secret}
        client = confluent_kafka.Producer(common | login, logger=logging.getLogger("quiet"))
        client.poll(0)
        return client.list_topics(timeout=10 if secret != "wrong" else 3)

    right = token if mechanism == "OAUTHBEARER" else password
    assert "freight" in metadata(right).topics
    with pytest.raises(confluent_kafka.KafkaException):
        metadata("wrong")


def test_http_clients_log_in_by_token(secured):
    token = secured.user("dora", ("describe", "cluster"))
    url = secured.environment["BRAIDLOG_URL"] + "/metrics"

    def get(headers):
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, context=client_context(), timeout=HANG_S) as answer:
            return answer.status

    assert get({"Authorization": f"Bearer {token}"}) == 200
    with pytest.raises(urllib.error.HTTPError, match="401"):
        get({})


def test_no_secret_is_in_the_log_or_the_metrics(secured):
    password = (secured.running.data_dir / "admin-password").read_text().strip()
    assert password not in secured.running.log()
    assert authority() is not None and "argon2" not in secured.running.log()


def test_a_connected_pulsar_client_loses_a_revoked_permission(secured):
    token = secured.user("olga", ("admin", "public/default/ledger"))
    client = secured.pulsar(token)
    producer = client.create_producer("ledger", send_timeout_millis=SEND_TIMEOUT_MS)
    producer.send(b"hello")
    secured.braidlog("permissions", "revoke", "olga", "admin", "public/default/ledger")
    deadline = time.monotonic() + HANG_S
    with pytest.raises(pulsar.PulsarException):
        while time.monotonic() < deadline:
            producer.send(b"again")
    with pytest.raises(pulsar.AuthorizationError):
        client.create_producer("ledger")
    client.close()


def test_a_removed_users_client_is_disconnected(secured):
    token = secured.user("piet", ("admin", "public/default/peat"))
    client = secured.pulsar(token)
    producer = client.create_producer("peat", send_timeout_millis=SEND_TIMEOUT_MS)
    producer.send(b"hello")
    secured.braidlog("users", "delete", "piet", "--yes")
    deadline = time.monotonic() + HANG_S
    with pytest.raises(pulsar.PulsarException):
        while time.monotonic() < deadline:
            producer.send(b"again")
    client.close()
