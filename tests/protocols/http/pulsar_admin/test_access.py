"""The right and the resource that each call of Pulsar's admin API needs, call by call.

A new route needs a line in `access.txt`: the action, the resource, then the calls.
"""

from pathlib import Path

from braidlog.broker.access.access import Access
from tests.broker.access.rules import Nothing
from tests.protocols.http.asgi import call
from tests.protocols.http.test_access import filled, routes

TABLE = Path(__file__).with_name("access.txt")
PREFIXES = ("/admin/", "/lookup/")


def rows():
    """Return the action and resource of each call, by method and path."""
    needed, needs = {}, ""
    for line in TABLE.read_text().splitlines():
        if line.startswith("  "):
            needed[line.strip()] = needs
        elif line and not line.startswith("#"):
            needs = line
    return needed


async def test_each_call_needs_its_right(app, broker):
    needed = {}
    for method, path in routes(broker):
        if path.startswith(PREFIXES):
            rules = Nothing()
            broker.access = Access(rules)
            assert (await call(app, method, filled(path))).status == 403
            ((_, action, resource),) = rules.asked
            needed[f"{method} {path}"] = f"{action.value} {resource}"
    assert needed == rows()
