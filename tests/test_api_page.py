"""The JSON answers in docs/api.md have every field that a broker sends; its generated tables are
those of the code.
"""

import json
import re
from dataclasses import fields
from pathlib import Path

import msgspec
import pytest

from braidlog.broker.config.settings import LogConfig
from braidlog.broker.topics.settings import log_settings
from braidlog.protocols.http.management.messages import (
    GroupDetail,
    GroupPage,
    TopicDetail,
    TopicPage,
)
from scripts import api_page

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "api.md").read_text()
SHOWN = {
    "GET /api/v1/topics?namespace=public/default": TopicPage,
    "GET /api/v1/topics/public/default/orders": TopicDetail,
    "GET /api/v1/groups": GroupPage,
    "GET /api/v1/groups/public/default/orders/billing": GroupDetail,
}


def shown(request: str) -> bytes:
    """Return the first block of JSON behind a request."""
    match = re.search(rf"^`{re.escape(request)}`.*?^```json\n(.*?)^```$", PAGE, re.M | re.S)
    assert match is not None, request
    return match[1].encode()


@pytest.mark.parametrize("request_", SHOWN)
def test_the_answer_has_the_fields_of_its_type(request_):
    answer = msgspec.json.decode(shown(request_), type=SHOWN[request_])
    assert msgspec.json.decode(msgspec.json.encode(answer)) == json.loads(shown(request_))


def test_settings_in_force_are_all_there_with_their_defaults():
    answer = json.loads(shown("GET /api/v1/topics/public/default/orders"))
    defaults = log_settings(LogConfig(), {})
    names = [field.name for field in fields(defaults) if field.init]
    assert answer["in_force"] == {name: getattr(defaults, name) for name in names}


def test_the_table_of_settings_is_that_of_the_code():
    """`make api-page` writes the table again, and the next."""
    head = api_page.SETTINGS_HEAD
    assert api_page.shown(head, PAGE) == api_page.table(head, api_page.setting_rows())


async def test_the_table_of_admin_calls_is_that_of_the_routes(broker):
    head = api_page.ADMIN_HEAD
    assert api_page.shown(head, PAGE) == api_page.table(head, api_page.admin_rows(broker))
