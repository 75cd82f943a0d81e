import pytest
from starlette.requests import Request

from braidlog.protocols.http.errors import RequestRefused
from braidlog.protocols.http.path_names import (
    decoded_group,
    group_text,
    parsed_topic,
    topic_name,
)
from tests.protocols.http.asgi import scope_of


def asking(query: str = "", **path_params: str) -> Request:
    return Request({**scope_of("GET", f"/?{query}"), "path_params": path_params})


def test_a_topic_name_is_percent_decoded_once():
    request = asking(tenant="t", namespace="a%20b", topic="c%252Fd")
    assert topic_name(request).full == "t/a b/c%2Fd"


@pytest.mark.parametrize("topic", ["a%2Fb", "x-partition-3", "%FF", "%00", ""])
def test_a_bad_topic_name_is_refused(topic):
    with pytest.raises(RequestRefused) as caught:
        topic_name(asking(tenant="t", namespace="n", topic=topic))
    assert caught.value.wire.status == 412


def test_a_topic_in_a_query_defaults_to_public_default():
    assert parsed_topic("orders").full == "public/default/orders"


@pytest.mark.parametrize("name", [b"billing", b"a/b", "ö".encode(), b"\xff\x00", b""])
def test_a_group_name_round_trips(name):
    text, encoding = group_text(name)
    assert decoded_group(asking(f"encoding={encoding}"), text.encode()) == name


@pytest.mark.parametrize(("query", "name"), [("encoding=hex", b"aa"), ("encoding=base64", b"a")])
def test_a_group_name_in_no_known_encoding_is_refused(query, name):
    with pytest.raises(RequestRefused) as caught:
        decoded_group(asking(query), name)
    assert caught.value.wire.code == "bad_query"
