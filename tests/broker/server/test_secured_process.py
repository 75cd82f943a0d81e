"""A broker process with TLS listeners and logins, and signals to the process."""

import base64
import json
import os
import signal
import ssl
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from conformance.server import RunningBroker
from tests.broker.server.certificates import authority, client_context, write_files
from tests.waiting import until_seen

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path):
    certificate, ca = write_files(tmp_path)
    settings = [
        "access.required=true",
        f"listeners.http.tls.certificate_file={certificate}",
        f"listeners.http.tls.client_ca_file={ca}",
        "listeners.http.tls.client_certificates=optional",
        f"listeners.kafka.tls.certificate_file={certificate}",
    ]
    listen = dict.fromkeys(("http", "kafka", "iggy"), "127.0.0.1:0")
    running = RunningBroker(tmp_path / "b", listen=listen, others=False, settings=settings)
    running.launch()
    until_seen(lambda: running.ready_file.exists() or not running.is_running())
    running.addresses = json.loads(running.ready_file.read_text())["listeners"]
    yield running
    running.kill()


def status_of(broker, path, context=None, password=None):
    """Return the status of a GET."""
    url = f"https://127.0.0.1:{broker.address('http')[1]}{path}"
    request = urllib.request.Request(url)
    if password is not None:
        login = base64.b64encode(f"admin:{password}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
    try:
        with urllib.request.urlopen(request, context=context or client_context()) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def certificate(broker):
    """Return the certificate of the HTTP listener for new clients."""
    return ssl.get_server_certificate(broker.address("http"))


def test_the_first_admin_is_created_with_a_password_file(broker):
    file = broker.data_dir / "admin-password"
    assert file.stat().st_mode & 0o777 == 0o600
    assert status_of(broker, "/api/v1/topics") == 401
    assert status_of(broker, "/api/v1/topics", password="wrong") == 401
    assert status_of(broker, "/api/v1/topics", password=file.read_text().strip()) == 200
    assert status_of(broker, "/healthz") == 200
    assert '"first_admin_made"' in broker.log()


def test_a_hangup_loads_new_certificates_and_keeps_good_ones(broker, tmp_path):
    first = certificate(broker)
    path = tmp_path / "server.pem"
    good = path.read_bytes()
    path.write_text("no certificate")
    os.kill(broker.pid, signal.SIGHUP)
    until_seen(lambda: '"certificate_not_reloaded"' in broker.log())
    assert certificate(broker) == first
    fresh = authority().issue_cert("localhost", "127.0.0.1")
    fresh.private_key_and_cert_chain_pem.write_to_path(path)
    assert path.read_bytes() != good
    os.kill(broker.pid, signal.SIGHUP)
    # Two listeners have a certificate.
    until_seen(lambda: broker.log().count('"certificate_reloaded"') == 2)
    assert certificate(broker) != first
    assert status_of(broker, "/healthz") == 200


def test_a_certificate_that_ends_soon_is_a_warning(broker, tmp_path):
    assert '"certificate_ends_soon"' not in broker.log()
    end = datetime.now(UTC) + timedelta(days=3, hours=1)
    short = authority().issue_cert("localhost", "127.0.0.1", not_after=end)
    short.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    os.kill(broker.pid, signal.SIGHUP)
    until_seen(lambda: broker.log().count('"certificate_ends_soon"') == 2)
    lines = map(json.loads, broker.log().splitlines())
    days = {line["listener"]: line["days_left"] for line in lines if "days_left" in line}
    assert days == {"http": 3, "kafka": 3}


def test_a_second_signal_stops_at_once(broker):
    password = (broker.data_dir / "admin-password").read_text().strip()
    assert status_of(broker, "/api/v1/topics", password=password) == 200
    os.kill(broker.pid, signal.SIGSTOP)
    os.kill(broker.pid, signal.SIGTERM)
    os.kill(broker.pid, signal.SIGINT)
    os.kill(broker.pid, signal.SIGCONT)
    assert broker.wait() in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert "stopped at once by a second SIG" in broker.output() + broker.log()


def test_an_invalid_certificate_stops_the_start_with_a_single_line(tmp_path):
    (tmp_path / "server.pem").write_text("no certificate")
    settings = [f"listeners.http.tls.certificate_file={tmp_path / 'server.pem'}"]
    listen = {"http": "127.0.0.1:0"}
    process = RunningBroker(tmp_path / "b", listen=listen, others=False, settings=settings)
    code, _, log = process.run_to_end()
    (line,) = log.strip().splitlines()
    assert code == 2 and "listeners.http.tls" in line


def test_unreadable_secrets_stop_the_start_with_a_single_line(tmp_path):
    settings = [f"access.token_secret_file={tmp_path / 'none'}"]
    listen = {"http": "127.0.0.1:0"}
    process = RunningBroker(tmp_path / "b", listen=listen, others=False, settings=settings)
    code, _, log = process.run_to_end()
    (line,) = log.strip().splitlines()
    assert code == 2 and str(tmp_path / "none") in line


def test_a_client_with_another_authority_does_not_connect(broker):
    context = ssl.create_default_context()
    trustme.CA().configure_trust(context)
    with pytest.raises(urllib.error.URLError, match="certificate"):
        status_of(broker, "/healthz", context)


def test_a_wrong_certificate_is_reported_under_its_setting(tmp_path):
    (tmp_path / "notes.txt").write_text("no certificate")
    settings = [f"listeners.http.tls.certificate_file={tmp_path / 'notes.txt'}"]
    broker = RunningBroker(
        tmp_path, others=False, listen={"http": "127.0.0.1:0"}, settings=settings
    )
    code, _, error = broker.run_to_end()
    assert code == 2
    assert error.startswith(f"braidlog: --set {settings[0]}: listeners.http.tls: ")
    assert error.endswith("no certificate: not PEM\n")


def test_a_wrong_key_is_reported_under_its_setting(tmp_path):
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(
        tmp_path / "server.pem"
    )
    settings = [
        f"listeners.http.tls.certificate_file={tmp_path / 'server.pem'}",
        f"listeners.http.tls.key_file={tmp_path / 'none.key'}",
    ]
    listen = {"http": "127.0.0.1:0"}
    broker = RunningBroker(tmp_path / "b", others=False, listen=listen, settings=settings)
    code, _, error = broker.run_to_end()
    assert code == 2
    assert error.startswith(f"braidlog: --set {settings[1]}: listeners.http.tls: ")
    assert error.endswith("none.key: No such file or directory\n")
