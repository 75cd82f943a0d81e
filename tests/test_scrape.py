"""A scrape of /metrics on a broker that requires a login, as docs/operations.md describes it."""

import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.broker.server.test_secured_process import broker

__all__ = ("broker",)  # The fixture: a broker with TLS that requires a login.

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operations.md"
COMMANDS = re.compile(r"^```sh\n(braidlog users create prometheus.*?)^```$", re.M | re.S)
SETTING = re.compile(r"\b(scheme|credentials_file|ca_file|targets): \[?\"?([^\s\"}\]]+)")
CONFIGURATION = re.compile(r"^```yaml\n(scrape_configs:.*?)^```$", re.M | re.S)


def run(broker, folder, commands):
    """Run commands in an administrator's shell; return the output."""
    address = f"https://127.0.0.1:{broker.address('http')[1]}"
    authority = str(folder / "authority.pem")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "BRAIDLOG_URL": address,
        "BRAIDLOG_CA_FILE": authority,
        "CURL_CA_BUNDLE": authority,
        "BRAIDLOG_USER": "admin",
        "BRAIDLOG_PASSWORD": (broker.data_dir / "admin-password").read_text().strip(),
    }
    done = subprocess.run(
        ["sh", "-eu", "-c", commands.replace("http://127.0.0.1:8080", address)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{broker.log_tail()}"
    return done.stdout


def scrape(broker, configuration, folder, token=None):
    """Scrape as Prometheus does with this entry of `scrape_configs`; return status and text."""
    assert configuration["targets"] == "broker:8443"
    url = f"{configuration['scheme']}://127.0.0.1:{broker.address('http')[1]}/metrics"
    authority = folder / Path(configuration["ca_file"]).name
    context = ssl.create_default_context(cafile=str(authority))
    request = urllib.request.Request(url)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_scrape_with_the_token_of_the_page_gets_every_metric(broker, tmp_path):
    (commands,) = COMMANDS.findall(PAGE.read_text())
    printed = run(broker, tmp_path, commands)
    assert "braidlog_" in printed
    (text,) = CONFIGURATION.findall(PAGE.read_text())
    entry = dict(SETTING.findall(text))
    # The files have the names of the page; Prometheus reads the token without its line end.
    (tmp_path / "braidlog.crt").write_bytes((tmp_path / "authority.pem").read_bytes())
    (tmp_path / "prometheus.token").rename(tmp_path / "braidlog.token")
    name = Path(entry["credentials_file"]).name
    token = (tmp_path / name).read_text().strip()
    status, text = scrape(broker, entry, tmp_path, token)
    assert status == 200, f"{text}\n{broker.log_tail()}"
    families = {family.name for family in text_string_to_metric_families(text)}
    assert {"braidlog_requests", "braidlog_errors"} <= families
    assert scrape(broker, entry, tmp_path)[0] == 401
    assert scrape(broker, entry, tmp_path, "wrong")[0] == 401
    run(broker, tmp_path, "braidlog users create nosy --no-password")
    other = run(broker, tmp_path, "braidlog tokens create nosy t").strip()
    assert scrape(broker, entry, tmp_path, other)[0] == 403
    run(broker, tmp_path, "braidlog tokens revoke prometheus scrape --yes")
    assert scrape(broker, entry, tmp_path, token)[0] == 401
