"""Stock clients at a broker with TLS that asks who they are: the right ones come in and do what
they may, the others do not. All is set up with `braidlog` itself, as docs/security.md says.
"""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

import pulsar
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import TopicAuthorizationFailedError

from conformance.server import RunningBroker
from tests.broker.server.certificates import authority, client_context, write_files

pytestmark = [pytest.mark.slow, pytest.mark.clients]
HANG_S = 60


class Secured:
    """The broker, and what its operator and its users have."""

    def __init__(self, running, ca):
        self.running = running
        self.ca = ca
        port = running.address("http")[1]
        self.environment = os.environ | {
            "BRAIDLOG_URL": f"https://127.0.0.1:{port}",
            "BRAIDLOG_CA_FILE": ca,
            "BRAIDLOG_USER": "admin",
            "BRAIDLOG_PASSWORD": (running.data_dir / "admin-password").read_text().strip(),
        }

    def braidlog(self, *arguments, code=0, **environment):
        done = subprocess.run(
            [sys.executable, "-m", "broker.cli.main", *arguments],
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        assert done.returncode == code, done.stderr
        return done.stdout.strip()

    def user(self, name, *permissions):
        """Make a user with these permissions; returns an access token of theirs."""
        self.braidlog("users", "create", name, "--no-password")
        for action, resource in permissions:
            self.braidlog("permissions", "grant", name, action, resource)
        return self.braidlog("tokens", "create", name, "test", "--expires", "1h")

    def pulsar(self, token, timeout_s=HANG_S):
        host, port = self.running.address("pulsar")
        return pulsar.Client(
            f"pulsar+ssl://{host}:{port}",
            authentication=None if token is None else pulsar.AuthenticationToken(token),
            tls_trust_certs_file_path=self.ca,
            tls_validate_hostname=True,
            operation_timeout_seconds=timeout_s,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )

    def kafka(self, certificate=None):
        host, port = self.running.address("kafka")
        return {
            "bootstrap_servers": f"{host}:{port}",
            "api_version": (0, 8, 2),
            "security_protocol": "SSL",
            "ssl_context": client_context(common_name=certificate),
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secured")
    certificate, ca = write_files(folder)
    settings = [
        "access.required=true",
        *(
            f"listeners.{listener}.tls.certificate_file={certificate}"
            for listener in ("kafka", "pulsar", "http")
        ),
        f"listeners.kafka.tls.client_ca_file={ca}",
        "listeners.kafka.tls.client_certificates=optional",
    ]
    with RunningBroker(folder / "broker", listen={"iggy": "off"}, settings=settings) as running:
        yield Secured(running, ca)


def test_the_first_admin_has_a_password_that_others_cannot_read(secured):
    file = secured.running.data_dir / "admin-password"
    assert file.stat().st_mode & 0o777 == 0o600
    (admin,) = json.loads(secured.braidlog("users", "list", "--output", "json"))[:1]
    assert admin["name"] == "admin"
    secured.braidlog("users", "list", code=1, BRAIDLOG_PASSWORD="wrong")


def test_pulsar_clients_come_in_by_token_and_do_what_they_may(secured):
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


def test_pulsar_clients_without_a_token_or_with_a_revoked_one_do_not_come_in(secured):
    token = secured.user("bert", ("admin", "public"))
    secured.braidlog("tokens", "revoke", "bert", "test")
    for wrong in (None, token, "nonsense"):
        client = secured.pulsar(wrong, timeout_s=3)  # It tries again until then.
        with pytest.raises(pulsar.PulsarException):
            client.create_producer("refused")
        client.close()
    listed = json.loads(secured.braidlog("topics", "list", "--output", "json"))
    assert "public/default/refused" not in [topic["name"] for topic in listed]


def test_kafka_clients_are_who_their_certificate_says(secured):
    secured.user("carl", ("admin", "public/default/parcels"))
    secured.braidlog("topics", "create", "parcels")
    producer = KafkaProducer(**secured.kafka("carl"))
    producer.send("parcels", b"hello").get(HANG_S)
    producer.close()
    consumer = KafkaConsumer(auto_offset_reset="earliest", **secured.kafka("carl"))
    consumer.assign([TopicPartition("parcels", 0)])
    assert next(iter(consumer)).value == b"hello"
    consumer.close()


def test_kafka_clients_without_a_certificate_may_do_nothing(secured):
    secured.braidlog("topics", "create", "sealed")
    consumer = KafkaConsumer(consumer_timeout_ms=2000, **secured.kafka())
    consumer.assign([TopicPartition("sealed", 0)])
    with pytest.raises((TopicAuthorizationFailedError, StopIteration)):
        next(consumer)
    assert "sealed" not in consumer.topics()
    consumer.close()


def test_http_clients_come_in_by_token(secured):
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
