"""A user's message for a good URL with another fault: the secret or the CA."""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trustme

from braidlog.broker.cli.client import AdminClient
from braidlog.broker.cli.failures import EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, AdminError


class LoginServer(BaseHTTPRequestHandler):
    """A broker that requires a login, and records the credentials."""

    def do_GET(self) -> None:
        self.server.shown.append(self.headers["Authorization"])  # type: ignore[attr-defined]
        self.send_response(401)
        self.end_headers()
        self.wfile.write(b'{"error_code": 40101, "message": "authentication is needed"}')

    def log_message(self, *_: object) -> None:
        """Log nothing: the tests read `shown`."""


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), LoginServer) as server:
        server.shown = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: ThreadingHTTPServer, scheme: str = "http", **environment: str) -> AdminError:
    """Return the error for a user who looks at a topic."""
    url = f"{scheme}://localhost:{server.server_port}"
    with pytest.raises(AdminError) as caught:
        AdminClient(url, environment).topic("orders")
    return caught.value


def test_a_user_without_credentials_is_shown_how_to_log_in(server):
    failure = ask(server)
    assert failure.exit_code == EXIT_FAILED
    assert str(failure).startswith("authentication is needed; set BRAIDLOG_TOKEN")


def test_a_user_with_credentials_sees_the_brokers_message(server):
    assert str(ask(server, BRAIDLOG_TOKEN="wrong")) == "authentication is needed"


def test_a_windows_line_end_is_no_part_of_a_token(server):
    ask(server, BRAIDLOG_TOKEN="abc\r\n")
    assert server.shown == ["Bearer abc"]


@pytest.mark.parametrize("token", ["a\nb", "t\xf6ken", "\u20ac"])
def test_an_invalid_token_is_refused_and_not_shown(server, token):
    failure = ask(server, BRAIDLOG_TOKEN=token)
    assert failure.exit_code == EXIT_USAGE
    assert "BRAIDLOG_TOKEN" in str(failure)
    assert token not in str(failure)
    assert not server.shown


def test_an_unreadable_ca_file_is_named_and_no_request_is_sent(server, tmp_path):
    missing = str(tmp_path / "none.pem")
    failure = ask(server, "https", BRAIDLOG_CA_FILE=missing)
    assert failure.exit_code == EXIT_USAGE
    assert str(failure) == f"BRAIDLOG_CA_FILE: {missing}: No such file or directory"
    (tmp_path / "empty.pem").write_text("nothing")
    failure = ask(server, "https", BRAIDLOG_CA_FILE=str(tmp_path / "empty.pem"))
    assert failure.exit_code == EXIT_USAGE
    assert str(failure).startswith("BRAIDLOG_CA_FILE: ")


def test_an_untrusted_certificate_names_the_setting(server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    failure = ask(server, "https")
    assert failure.exit_code == EXIT_UNREACHABLE
    assert "BRAIDLOG_CA_FILE" in str(failure)
