"""The first page: the broker's totals, rates, groups that are behind, and the last hour."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from braidlog.broker.server.tls import CERTIFICATE_WARNING_DAYS
from braidlog.protocols.http.console.charts import make_charts
from braidlog.protocols.http.console.inside import ApiError
from braidlog.protocols.http.console.visits import API, Page, Visit
from braidlog.protocols.http.management.history import History, ProtocolRates
from braidlog.protocols.http.management.messages import GroupPage, Readiness
from braidlog.protocols.http.management.overview import Stats

LAGS_SHOWN, ERRORS_SHOWN = 5, 5
LOW_DISK_SHARE = 0.05  # Free share of the disk below which the page marks the free space.


@dataclass(frozen=True, slots=True)
class ShownProtocol:
    """Connections of a protocol, and its rates in the last half minute."""

    name: str
    connections: int
    rates: ProtocolRates


async def show_overview(visit: Visit) -> Page:
    """The broker's totals and rates, the groups with the largest lags, and charts."""
    stats = await visit.api.get(f"{API}/stats", Stats)
    history = await visit.api.get(f"{API}/history", History)
    readiness = await _readiness(visit)
    groups = await visit.api.get(f"{API}/groups", GroupPage, sort="lag", limit=LAGS_SHOWN)
    latest = history.samples[-1].protocols if history.samples else {}
    ends = [row for row in stats.certificates if row.expires_us is not None]
    values = {
        "stats": stats,
        "is_disk_low": stats.disk_free_bytes < LOW_DISK_SHARE * stats.disk_bytes,
        "refusals": [name for name, is_good in readiness.checks.items() if not is_good],
        "protocols": [
            ShownProtocol(name, totals.connections, latest.get(name, ProtocolRates()))
            for name, totals in stats.protocols.items()
        ],
        "refused": stats.refused[:ERRORS_SHOWN],
        "next_end": min(ends, key=lambda certificate: certificate.days_left or 0, default=None),
        "warning_days": CERTIFICATE_WARNING_DAYS,
        "lags": [group for group in groups.groups if group.backlog],
        "charts": make_charts(history),
    }
    return Page("overview.html", values)


async def _readiness(visit: Visit) -> Readiness:
    """Return the broker's readiness, also if the broker is not ready. Raises ApiError."""
    try:
        return await visit.api.get("/readyz", Readiness)
    except ApiError as error:
        if error.status != 503:
            raise
        return msgspec.json.decode(error.body, type=Readiness)
