"""A client of a running broker's JSON API (docs/api.md), for the command line.

Uses the standard library only, so that a command starts fast. Knows no command and no table.
"""

from __future__ import annotations

import base64
import copy
import http.client
import json
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from email.message import Message
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from braidlog.broker.cli.failures import (
    EXIT_FAILED,
    EXIT_NOT_FOUND,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    AdminError,
)

TIMEOUT_S = 30.0  # A topic of thousands of partitions takes seconds to create.
# An invalid name, number or setting comes from the command, so the exit code is that of a wrong
# flag.
EXIT_CODES = {400: EXIT_USAGE, 404: EXIT_NOT_FOUND, 412: EXIT_USAGE, 422: EXIT_USAGE}
CA_FILE = "BRAIDLOG_CA_FILE"
REFUSED = frozenset({"error_code", "reason"})  # Fields of a broker's errors.
API = "/api/v1"
# A connection that was idle for longer is not used again: the answer to a request on a connection
# that the broker ends would be lost.
IDLE_S = 3.0

Json = dict[str, Any]


class AdminClient:
    """A broker, by the URL of its HTTP listener."""

    def __init__(self, url: str, environment: Mapping[str, str] = os.environ) -> None:
        """Read the login from the environment: BRAIDLOG_TOKEN, or BRAIDLOG_USER and
        BRAIDLOG_PASSWORD.

        BRAIDLOG_CA_FILE names the CA of the broker's certificate. Raises AdminError if `url` is no
        http or https URL, or the token cannot be sent.
        """
        self._credentials = _credentials(environment)
        self._ca_file = environment.get(CA_FILE)
        try:
            parts = urlsplit(url.encode().decode())  # Raises ValueError for other bytes too.
            self._address = (parts.hostname or "", parts.port)
        except ValueError:  # An unclosed bracket, or an impossible port.
            parts, self._address = urlsplit(""), ("", None)
        if parts.scheme not in ("http", "https") or not self._address[0]:
            raise AdminError(f"invalid broker URL {url!r}, expected http://HOST:PORT", EXIT_USAGE)
        self._url = url
        self._is_https = parts.scheme == "https"
        self._base = parts.path.rstrip("/")
        self._connection: http.client.HTTPConnection | None = None
        self._used_at = 0.0

    def topic(self, name: str) -> Json:
        """Return all details of a topic. Raises AdminError."""
        return self.ask("GET", f"{API}/topics/{topic_path(name)}")

    def pages(self, path: str, kind: str, **query: str | None) -> Iterator[Json]:
        """Iterate over a list of the broker, page after page. `kind` names the list in an answer;
        a query without a value is left out. Raises AdminError.
        """
        for page in self.whole_pages(path, **query):
            yield from page[kind]

    def whole_pages(self, path: str, **query: str | None) -> Iterator[Json]:
        """Iterate over the pages of a list, as `pages`. Raises AdminError."""
        after: str | None = ""
        while after is not None:
            present = {key: value for key, value in {**query, "after": after}.items() if value}
            page = self.ask("GET", f"{path}?{urlencode(present)}")
            yield page
            after = page["next"]

    def ask(
        self, method: str, path: str, body: object = None, *, accepted: int | None = None
    ) -> Json:
        """Send a request and return the JSON object of the answer; a status of 400 or more, other
        than `accepted`, raises AdminError.
        """
        self.send(method, path, body)
        return self._parse(*self.receive(accepted)[:2], accepted)

    def call(
        self, method: str, path: str, body: object = None, accept: str = "*/*"
    ) -> tuple[int, bytes, Message]:
        """Send a request and return status, content and headers of the answer; a status of 400 or
        more raises AdminError.
        """
        self.send(method, path, body, accept)
        return self.receive()

    def send(self, method: str, path: str, body: object = None, accept: str = "*/*") -> None:
        """Send a request, whose answer `receive` returns. Raises AdminError."""
        headers = {"Content-Type": "application/json", "Accept": accept, **self._credentials}
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if time.monotonic() - self._used_at > IDLE_S:
            self.close()  # The broker may be about to end the idle connection.
        try:
            if self._connection is None:
                self._connection = self._new_connection()
            self._connection.request(method, self._base + path, content, headers)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    def receive(self, accepted: int | None = None) -> tuple[int, bytes, Message]:
        """Return the answer to the request that was sent, as `call` does. Raises AdminError."""
        assert self._connection is not None, "a request was sent"
        try:
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        self._used_at = time.monotonic()
        if response.status >= 400 and response.status != accepted:
            answer = self._parse(response.status, text)
            message = str(answer.get("message", answer.get("reason")))
            if response.status == http.client.UNAUTHORIZED and not self._credentials:
                message += "; set BRAIDLOG_TOKEN, or BRAIDLOG_USER and BRAIDLOG_PASSWORD"
            raise AdminError(message, EXIT_CODES.get(response.status, EXIT_FAILED))
        return response.status, text, response.headers

    def another(self) -> AdminClient:
        """Return a client of the same broker with a connection of its own."""
        other = copy.copy(self)
        other._connection = None
        return other

    def fileno(self) -> int:
        """Return the socket of the request that was sent, to wait for its answer."""
        assert self._connection is not None and self._connection.sock is not None
        return self._connection.sock.fileno()

    def close(self) -> None:
        """Close the connection; the next request opens a new connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _unreachable(self, error: Exception) -> AdminError:
        self.close()
        reason = _reason(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            reason += f"; {CA_FILE} names the file of a CA to trust"
        elif isinstance(error, ssl.SSLError):
            reason += "; a listener without TLS has an http URL"
        elif isinstance(error, ConnectionRefusedError):
            reason += "; `braidlog serve` starts a broker, --url names another"
        elif isinstance(error, http.client.BadStatusLine) and not self._is_https:
            reason += (
                "; use https:// for a listener with TLS; this may be the port of another protocol"
            )
        return AdminError(f"no broker answers at {self._url}: {reason}", EXIT_UNREACHABLE)

    def _new_connection(self) -> http.client.HTTPConnection:
        host, port = self._address
        if not self._is_https:
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:
            raise AdminError(f"{CA_FILE}: {self._ca_file}: {_reason(error)}", EXIT_USAGE) from error
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)

    def _parse(self, status: int, text: bytes, accepted: int | None = None) -> Json:
        if status == http.client.NO_CONTENT:
            return {}
        try:
            answer = json.loads(text)
            is_good = status < 400 or status == accepted
            if isinstance(answer, dict) and (is_good or REFUSED & answer.keys()):
                return answer
        except ValueError:
            pass  # Raised below, as for every answer that no broker sends.
        raise AdminError(f"{self._url} is not a Braidlog broker (HTTP {status})")


def _credentials(environment: Mapping[str, str]) -> dict[str, str]:
    # Strip spaces around the token: a file that was edited on Windows ends with a CR.
    token, user = environment.get("BRAIDLOG_TOKEN", "").strip(), environment.get("BRAIDLOG_USER")
    if token:
        if not token.isascii() or not token.isprintable():
            raise AdminError("BRAIDLOG_TOKEN contains characters that no token has", EXIT_USAGE)
        return {"Authorization": f"Bearer {token}"}
    if user:
        pair = f"{user}:{environment.get('BRAIDLOG_PASSWORD', '')}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def topic_path(name: str) -> str:
    """Return `tenant/namespace/topic` of a topic as users write the name, each part
    percent-encoded.

    Raises AdminError.
    """
    parts = name.removeprefix("persistent://").split("/")
    if len(parts) == 1:
        parts = ["public", "default", *parts]
    if len(parts) != 3 or not all(parts):
        raise AdminError(f"{name!r} is neither a topic nor tenant/namespace/topic", EXIT_USAGE)
    return "/".join(path_part(part) for part in parts)


def path_part(name: str | bytes) -> str:
    """Return a name, percent-encoded for a path. Raises AdminError for a text that is not UTF-8."""
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise AdminError(f"{name!r} is not UTF-8", EXIT_USAGE) from None
