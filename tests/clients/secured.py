"""A broker with TLS and authentication, and the credentials of its operator and users."""

import os
import subprocess
import sys

import pulsar
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from conformance.server import RunningBroker
from tests.broker.server.certificates import authority, client_context, write_files

HANG_S = 60
TOKEN_SECRET = b"0123456789abcdef0123456789abcdef"


class Secured:
    """The broker, and the credentials of its operator and users."""

    def __init__(self, running, ca, folder):
        self.running = running
        self.ca = ca
        self.folder = folder
        port = running.address("http")[1]
        self.environment = os.environ | {
            "BRAIDLOG_URL": f"https://127.0.0.1:{port}",
            "BRAIDLOG_CA_FILE": ca,
            "BRAIDLOG_USER": "admin",
            "BRAIDLOG_PASSWORD": (running.data_dir / "admin-password").read_text().strip(),
        }

    def braidlog(self, *arguments, code=0, **environment):
        done = subprocess.run(
            [sys.executable, "-m", "braidlog.broker.cli.main", *arguments],
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        assert done.returncode == code, done.stderr
        return done.stdout.strip()

    def user(self, name, *permissions):
        """Create a user with these permissions; return an access token of the user."""
        self.braidlog("users", "create", name, "--no-password")
        for action, resource in permissions:
            self.braidlog("permissions", "grant", name, action, resource)
        return self.braidlog("tokens", "create", name, "test", "--expires", "1h")

    def certificate(self, name):
        """Return the files of a client's certificate and key; Java needs the key in PKCS 8."""
        issued = authority().issue_cert("client@test", common_name=name)
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(certificate)
        private = load_pem_private_key(issued.private_key_pem.bytes(), None)
        form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        key.write_bytes(private.private_bytes(*form))
        return str(certificate), str(key)

    def pulsar(self, token, timeout_s=HANG_S, scheme="pulsar+ssl"):
        """Return a client with a token: the token's text, or a function that returns the text."""
        return self.pulsar_by(
            None if token is None else pulsar.AuthenticationToken(token), timeout_s, scheme
        )

    def pulsar_by(self, authentication, timeout_s=HANG_S, scheme="pulsar+ssl"):
        """Return a client; with the scheme https its lookups go to the HTTP listener."""
        host, port = self.running.address("http" if scheme == "https" else "pulsar")
        return pulsar.Client(
            f"{scheme}://{host}:{port}",
            authentication=authentication,
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


def opened(folder):
    """Yield a started broker below a folder."""
    certificate, ca = write_files(folder)
    (folder / "secret").write_bytes(TOKEN_SECRET)
    settings = [
        "access.required=true",
        "access.slow_down=false",  # Wrong logins of a test must not affect the next test.
        f"access.token_secret_file={folder / 'secret'}",
        *(
            f"listeners.{listener}.tls.certificate_file={certificate}"
            for listener in ("kafka", "pulsar", "http", "iggy")
        ),
        *(
            f"listeners.{listener}.tls.client_ca_file={ca}"
            for listener in ("kafka", "pulsar", "http")
        ),
        *(
            f"listeners.{listener}.tls.client_certificates=optional"
            for listener in ("kafka", "pulsar", "http")
        ),
    ]
    with RunningBroker(folder / "broker", settings=settings) as running:
        secured = Secured(running, ca, folder)
        password_file = folder / "password"
        password_file.write_text("a secret\n")
        secured.braidlog("users", "create", "shipper", "--password-file", str(password_file))
        secured.braidlog("permissions", "grant", "shipper", "admin", "public/default/freight")
        secured.braidlog("topics", "create", "freight")
        secured.shipper = ("a secret", secured.braidlog("tokens", "create", "shipper", "t"))
        yield secured
