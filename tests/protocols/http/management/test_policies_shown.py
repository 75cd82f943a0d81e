"""Policies that Pulsar's admin API set are shown by the management API, the console and the command
line.
"""

from braidlog.broker.cli.admin import _topic_tables
from tests.protocols.http.asgi import call

SPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/orders"


async def test_policies_of_every_level_are_shown_with_their_level(app):
    assert (await call(app, "PUT", TOPIC)).status == 204
    assert (await call(app, "POST", f"{SPACE}/maxProducersPerTopic", 3)).status == 204
    assert (await call(app, "POST", f"{SPACE}/messageTTL", 60)).status == 204
    assert (await call(app, "POST", f"{TOPIC}/messageTTL?messageTTL=30")).status == 204
    shown = (await call(app, "GET", "/api/v1/topics/public/default/orders")).json
    name = next(name for name, value in shown["inherited"].items() if value == 3)
    assert shown["in_force"][name] == 3
    assert shown["settings"] == {"message_ttl_s": 30}
    assert shown["in_force"]["message_ttl_s"] == 30
    tables = {title: rows for title, _, rows in _topic_tables(shown)}
    levels = {row[0]: (row[1], row[2]) for row in tables["settings"]}
    assert levels[name] == ("3", "namespace")
    assert levels["message_ttl_s"] == ("30", "topic")
    assert levels["segment_bytes"][1] == "broker"
