"""A refused scrape of a run's broker shows the broker's log, whose file may be gone later."""

from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from conformance.server import BrokerFailed, RunningBroker

LOGGED = '{"event": "request_failed", "exception": "Traceback: KeyError"}'


class FailingBroker(BaseHTTPRequestHandler):
    """Answers as a listener with a bug."""

    def do_GET(self):
        self.send_response(500)
        self.end_headers()
        self.wfile.write(b"internal error, in the broker's log as request 7")

    def log_message(self, *_):
        """Print nothing."""


def test_a_refused_scrape_shows_the_answer_and_the_log(tmp_path):
    (tmp_path / "log").write_text(f"{LOGGED}\n")
    broker = RunningBroker(tmp_path)
    with HTTPServer(("127.0.0.1", 0), FailingBroker) as server:
        broker.addresses["http"] = f"127.0.0.1:{server.server_port}"
        thread = Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(BrokerFailed) as caught:
            broker.metrics_lines()
        thread.join()
    assert "answered 500: internal error" in str(caught.value)
    assert LOGGED in str(caught.value)
