import pytest
from starlette.requests import Request

from braidlog.protocols.http.errors import RequestRefused
from braidlog.protocols.http.query import page_limit
from tests.protocols.http.asgi import scope_of


def asking(query: str = "") -> Request:
    return Request(scope_of("GET", f"/?{query}"))


def test_a_page_has_a_thousand_lines_by_default():
    assert page_limit(asking()) == 1000
    assert page_limit(asking("limit=10000")) == 10_000


@pytest.mark.parametrize("limit", ["0", "10001", "-1", "x", "", "1.5", "9" * 5000, "\u0661"])
def test_an_invalid_page_size_is_refused(limit):
    with pytest.raises(RequestRefused) as caught:
        page_limit(asking(f"limit={limit}"))
    assert caught.value.wire.code == "bad_query"
