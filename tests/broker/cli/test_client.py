"""What a user is told where the URL is good and something else is not: the secret or the CA."""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trustme

from braidlog.broker.cli.client import (
    EXIT_FAILED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    AdminClient,
    AdminError,
)


class Refusing(BaseHTTPRequestHandler):
    """A broker that wants a login, and remembers what it was shown."""

    def do_GET(self) -> None:
        self.server.shown.append(self.headers["Authorization"])  # type: ignore[attr-defined]
        self.send_response(401)
        self.end_headers()
        self.wfile.write(b'{"error_code": 40101, "message": "authentication is needed"}')

    def log_message(self, *_: object) -> None:
        """Nothing: the tests look at `shown`."""


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        server.shown = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: ThreadingHTTPServer, scheme: str = "http", **environment: str) -> AdminError:
    """What is said to a user who lists topics."""
    url = f"{scheme}://localhost:{server.server_port}"
    with pytest.raises(AdminError) as caught:
        list(AdminClient(url, environment).topics())
    return caught.value


def test_who_says_nothing_is_told_how_to_log_in(server):
    told = ask(server)
    assert told.exit_code == EXIT_FAILED
    assert str(told).startswith("authentication is needed; set BRAIDLOG_TOKEN")


def test_who_said_who_they_are_is_told_what_the_broker_says(server):
    assert str(ask(server, BRAIDLOG_TOKEN="wrong")) == "authentication is needed"


def test_a_line_end_of_another_system_is_no_part_of_a_token(server):
    ask(server, BRAIDLOG_TOKEN="abc\r\n")
    assert server.shown == ["Bearer abc"]


@pytest.mark.parametrize("token", ["a\nb", "t\xf6ken", "\u20ac"])
def test_a_token_that_cannot_be_sent_is_refused_without_being_shown(server, token):
    told = ask(server, BRAIDLOG_TOKEN=token)
    assert told.exit_code == EXIT_USAGE
    assert "BRAIDLOG_TOKEN" in str(told)
    assert token not in str(told)
    assert not server.shown


def test_a_ca_file_that_cannot_be_read_is_named_and_nobody_is_asked(server, tmp_path):
    missing = str(tmp_path / "none.pem")
    told = ask(server, "https", BRAIDLOG_CA_FILE=missing)
    assert told.exit_code == EXIT_USAGE
    assert str(told) == f"BRAIDLOG_CA_FILE: {missing}: No such file or directory"
    (tmp_path / "empty.pem").write_text("nothing")
    told = ask(server, "https", BRAIDLOG_CA_FILE=str(tmp_path / "empty.pem"))
    assert told.exit_code == EXIT_USAGE
    assert str(told).startswith("BRAIDLOG_CA_FILE: ")


def test_a_certificate_that_is_not_trusted_says_what_to_set(server):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    told = ask(server, "https")
    assert told.exit_code == EXIT_UNREACHABLE
    assert "BRAIDLOG_CA_FILE" in str(told)
