"""`/healthz`, `/readyz` and `/metrics`. Knows the reports, not the counting."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import trio
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from braidlog.broker.families import exposition
from braidlog.broker.runtime.threads import import_in_thread, run_in_thread
from braidlog.protocols.http.management import messages
from braidlog.protocols.http.management.backlog_ages import Ages
from braidlog.protocols.http.management.rates import RateSamples
from braidlog.protocols.http.requests import json_response

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.options import RestOptions

# Each partition or group has some twenty series, and a thousand series take 3 ms to render. More
# than this are rendered in a worker thread, so that no listener waits.
INLINE_MAX = 300
TEXT, OPENMETRICS = "text/plain", "application/openmetrics-text"
TEXT_TYPE = f"{TEXT}; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"
WEIGHT = re.compile(r"[01](?:\.[0-9]{0,3})?")


# Imported for the first scrape: 4 MB with its dependencies.
SCRAPING = "braidlog.protocols.http.management.log_metrics"


class HealthApi:
    """Handlers for monitoring."""

    def __init__(self, broker: Broker, options: RestOptions) -> None:
        self._broker = broker
        self._disk_free_bytes_min = options.disk_free_bytes_min
        self._sets = frozenset(options.metrics_sets)
        self._series_max = options.metrics_series_max
        self._ages = Ages()
        self._rates = RateSamples(trio.current_time())

    async def healthz(self, _: Request) -> Response:
        """200 for as long as the event loop answers."""
        return PlainTextResponse("ok\n")

    async def readyz(self, _: Request) -> Response:
        """200 while the broker accepts new work, otherwise 503; both with the reasons."""
        disk = os.statvfs(self._broker.data_dir)
        checks = {
            "started": self._broker.ready.is_set(),
            "not_stopping": not self._broker.is_leaving,
            "disk_space": disk.f_bavail * disk.f_frsize >= self._disk_free_bytes_min,
            "disk_writable": await self._broker.has_room(),
        }
        readiness = messages.Readiness(ready=all(checks.values()), checks=checks)
        return json_response(readiness, 200 if readiness.ready else 503)

    async def moved(self, _: Request) -> Response:
        """Redirect to `/metrics`: Apache Pulsar's scrapers request this path."""
        return Response(status_code=301, headers={"Location": "/metrics"})

    async def metrics(self, request: Request) -> Response:
        """All metrics, in the text format that the scraper requests."""
        await import_in_thread(SCRAPING)
        from braidlog.protocols.http.management.log_metrics import scrape

        openmetrics = takes_openmetrics(request.headers.get("accept", ""))
        result = await scrape(self._broker, self._ages, self._rates)

        def render() -> bytes:
            families = result.families(self._sets, self._series_max)
            return exposition(families, openmetrics=openmetrics)

        inline = result.size <= INLINE_MAX
        text = render() if inline else await run_in_thread(render)
        return Response(text, media_type=OPENMETRICS_TYPE if openmetrics else TEXT_TYPE)


def takes_openmetrics(accept: str) -> bool:
    """Return True if the client of this Accept header (RFC 9110, section 12.5.1) gives OpenMetrics
    1.0 at least the weight of the text format. An entry that cannot be read counts as absent.
    """
    weights = {OPENMETRICS: 0.0, TEXT: 0.0}
    for media_range in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in media_range.split(";"))
        values = {
            name.strip(): value.strip().strip('"')
            for name, _, value in (parameter.partition("=") for parameter in parameters)
        }
        major = values.get("version", "").partition(".")[0]
        if kind == TEXT or (kind == OPENMETRICS and major in ("", "1")):
            weights[kind] = max(weights[kind], _weight(values.get("q", "1")))
    return weights[OPENMETRICS] > 0 and weights[OPENMETRICS] >= weights[TEXT]


def _weight(text: str) -> float:
    """Return a quality value; 0 for invalid text."""
    return float(text) if WEIGHT.fullmatch(text) else 0.0
