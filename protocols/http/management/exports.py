"""`/api/v1/exports`: the last runs of export jobs, as the jobs reported them. In memory only."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.rights import CLUSTER, Action, Resource
from braidlog.protocols.http.path_names import parsed_topic
from braidlog.protocols.http.requests import json_response
from braidlog.protocols.http.routes import seen_by

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.bodies import BodyReader

RUNS_MAX: Final = 50  # The oldest run is forgotten.
RANGES_MAX: Final = 100  # Of a run: an answer looks at 5,000 ranges in one turn.
Name = Annotated[str, msgspec.Meta(max_length=1000)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class ExportedRange(msgspec.Struct, forbid_unknown_fields=True):
    """Offsets [start, end) of a partition."""

    topic: Name
    partition: Count
    start: Count
    end: Count


class ExportRun(msgspec.Struct, forbid_unknown_fields=True):
    """A finished run. `lost` records were trimmed before their turn; `dead_letters` have no row."""

    target: Name
    group: Name
    began_us: Count
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    rows: Count
    files: Count
    bytes: Count
    ranges: Annotated[list[ExportedRange], msgspec.Meta(max_length=RANGES_MAX)]
    dead_letters: Count = 0
    lost: Count = 0


class ExportList(msgspec.Struct):
    """Runs of export jobs, the newest first."""

    runs: list[ExportRun]


class ExportsApi:
    """Handlers of the runs of export jobs."""

    def __init__(self, broker: Broker, bodies: BodyReader) -> None:
        self._broker = broker
        self._bodies = bodies
        self._runs: deque[ExportRun] = deque(maxlen=RUNS_MAX)

    async def report(self, request: Request) -> Response:
        """Report a finished run. The right `consume` on each topic of the run is needed."""
        run = await self._bodies.read(request, ExportRun)
        exchange, access = request.scope["exchange"], self._broker.access
        for topic in {part.topic for part in run.ranges}:
            resource = Resource.of_topic(parsed_topic(topic))
            access.check(exchange.principal, Action.CONSUME, resource, exchange.at)
        self._runs.appendleft(run)
        return Response(status_code=204)

    async def show(self, request: Request) -> Response:
        """The last runs that were reported since the start, the newest first. The list shows the
        ranges of topics that the client may see, and no run of other topics alone.
        """
        is_seen = seen_by(self._broker, request)
        topics = {part.topic for run in self._runs for part in run.ranges}
        seen = {topic for topic in topics if is_seen(Resource.of_topic(parsed_topic(topic)))}
        runs = []
        for run in self._runs:
            ranges = [part for part in run.ranges if part.topic in seen]
            # A run without ranges found every record trimmed.
            if ranges or (not run.ranges and is_seen(CLUSTER)):
                runs.append(msgspec.structs.replace(run, ranges=ranges))
        return json_response(ExportList(runs))
