"""A token in the query of a WebSocket, for browsers, which can send no header."""

import pytest
from starlette.requests import Request

from braidlog.broker.errors import NotAuthenticated
from braidlog.protocols.http.login import identity_of
from braidlog.protocols.transport.messages import WEBSOCKET
from tests.protocols.http.asgi import scope_of

PATH = "/ws/v2/reader/persistent/public/default/orders?token="


class Tokens:
    """An authentication that returns the token of each client."""

    required = True

    def bearer(self, token, at):
        return token


def opening(path, headers=None):
    scope = {**scope_of("GET", path, headers), "client": None, "extensions": {WEBSOCKET: ""}}
    return Request(scope)


@pytest.mark.parametrize("text", ["abc", "Bearer%20abc"])
async def test_token_of_the_query_is_the_clients(text):
    assert await identity_of(Tokens(), opening(PATH + text)) == "abc"


async def test_header_wins():
    headers = {"Authorization": "Bearer header"}
    assert await identity_of(Tokens(), opening(PATH + "abc", headers)) == "header"


async def test_plain_request_has_no_token_in_its_query():
    request = Request({**scope_of("GET", PATH + "abc"), "client": None})
    with pytest.raises(NotAuthenticated):
        await identity_of(Tokens(), request)


async def test_empty_token_is_none():
    with pytest.raises(NotAuthenticated):
        await identity_of(Tokens(), opening(PATH))
