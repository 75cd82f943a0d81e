"""The page of the audit trail: logins, decisions and changes, the newest first."""

from __future__ import annotations

from braidlog.protocols.http.console.visits import API, Page, Visit
from braidlog.protocols.http.management.audit_trail import EVENTS, AuditPage

LINES_SHOWN = 100
COLUMNS = ("time", "event", "principal", "protocol", "host", "allowed", "count")


async def show_audit(visit: Visit) -> Page:
    """Lines of the audit log."""
    contains, event = visit.query("contains"), visit.query("event") or EVENTS[0]
    is_refused = bool(visit.query("refused"))
    searched = {"contains": contains, "event": event}
    query = {
        **searched,
        "refused": "true" if is_refused else None,
        "before": visit.query("before") or None,
        "limit": LINES_SHOWN,
    }
    page = await visit.api.get(f"{API}/audit", AuditPage, **query)
    values = {
        "is_on": page.on,
        "lines": [
            {name: line.get(name, "") for name in COLUMNS}
            | {"details": {key: line[key] for key in line if key not in COLUMNS}}
            for line in page.lines
        ],
        "next": page.next,
        "searched": searched | ({"refused": "true"} if is_refused else {}),
        "events": EVENTS,
    }
    return Page("audit.html", values)
