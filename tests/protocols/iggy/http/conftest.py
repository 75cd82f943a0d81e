"""Requests to the application of Iggy's HTTP API, without sockets."""

import json
from types import SimpleNamespace

import pytest

from braidlog.broker.server.written_topics import WrittenTopics
from braidlog.protocols.iggy.adapter import ADAPTER, state_of
from braidlog.protocols.iggy.http.app import BODY_BYTES_ALL_MAX, IggyHttp
from braidlog.protocols.iggy.http.options import IggyHttpOptions
from braidlog.protocols.transport.clients import CLIENT


class IggyHttpClient:
    """A client of an application."""

    def __init__(self, app) -> None:
        self.app = app
        self.token = ""
        self.headers = {}  # Of the last response.
        self.piece_bytes = []  # Sizes of the pieces of its body.

    async def ask(self, method: str, target: str, body: object = None, **headers: str):
        """Return status and body of a response; a body in JSON is decoded."""
        path, _, query = target.partition("?")
        if self.token:
            headers.setdefault("authorization", f"Bearer {self.token}")
        data = body if isinstance(body, bytes) else b"" if body is None else encoded(body)
        sent = []
        scope = {
            "type": "http",
            "method": method,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            CLIENT: SimpleNamespace(
                id=7,
                peer="127.0.0.1:9",
                is_encrypted=False,
                local=("127.0.0.1", 3000),
                note=lambda *_: None,
                written_topics=WrittenTopics(),
            ),
        }

        async def receive():
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message):
            sent.append(message)

        await self.app(scope, receive, send)
        start, *pieces = sent
        assert [piece["more_body"] for piece in pieces] == [True] * (len(pieces) - 1) + [False]
        self.piece_bytes = [len(piece["body"]) for piece in pieces]
        answer = b"".join(piece["body"] for piece in pieces)
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}
        is_json = self.headers.get("content-type") == "application/json"
        return start["status"], json.loads(answer) if is_json else answer

    async def login(self, username: str = "iggy", password: str = "iggy") -> int:
        """Log in; return the status."""
        body = {"username": username, "password": password}
        status, answer = await self.ask("POST", "/users/login", body)
        if status == 200:
            self.token = answer["access_token"]["token"]
        return status


def encoded(body: object) -> bytes:
    return json.dumps(body).encode()


@pytest.fixture
def make_client(broker):
    def make(body_bytes_all_max=BODY_BYTES_ALL_MAX, turns=None, **options):
        shared = state_of(ADAPTER.states, broker)
        app = IggyHttp(
            broker,
            IggyHttpOptions(**options),
            shared,
            loopback=True,
            body_bytes_all_max=body_bytes_all_max,
            turns=turns,
        )
        return IggyHttpClient(app)

    return make


async def prepare(client: IggyHttpClient) -> None:
    """Log a client in as root, and create the topic `st/tp` of two partitions."""
    assert await client.login() == 200
    assert (await client.ask("POST", "/streams", {"name": "st"}))[0] == 200
    topic = {"name": "tp", "partitions_count": 2, "message_expiry": 0, "max_topic_size": 0}
    assert (await client.ask("POST", "/streams/st/topics", topic))[0] == 200


@pytest.fixture
async def client(make_client):
    """Return a client that has logged in as root, with the topic `st/tp` of two partitions."""
    client = make_client()
    await prepare(client)
    return client
