"""The list of runs of export jobs."""

from braidlog.protocols.http.management.exports import RANGES_MAX, RUNS_MAX
from tests.protocols.http.asgi import call

RUN = {"target": "/lake", "group": "g", "began_us": 5, "seconds": 1, "rows": 2, "files": 1}
RUN |= {"bytes": 9}


def run(*topics, **fields):
    ranges = [{"topic": topic, "partition": 0, "start": 0, "end": 2} for topic in topics]
    return RUN | {"ranges": ranges} | fields


async def test_the_newest_runs_are_kept(app):
    for rows in range(RUNS_MAX + 2):
        answer = await call(app, "POST", "/api/v1/exports", run("orders", rows=rows))
        assert answer.status == 204
    runs = (await call(app, "GET", "/api/v1/exports")).json["runs"]
    assert [each["rows"] for each in runs] == list(range(RUNS_MAX + 1, 1, -1))


async def test_a_run_that_found_every_record_trimmed_is_shown(app):
    assert (await call(app, "POST", "/api/v1/exports", run(lost=7))).status == 204
    (shown,) = (await call(app, "GET", "/api/v1/exports")).json["runs"]
    assert (shown["lost"], shown["ranges"]) == (7, [])


async def test_bad_reports_are_refused(app):
    for body in (
        run("orders", rows=-1),
        run("orders", target="x" * 1001),
        run(*["orders"] * (RANGES_MAX + 1)),
        RUN,
    ):
        assert (await call(app, "POST", "/api/v1/exports", body)).status == 400
    assert (await call(app, "POST", "/api/v1/exports", run("a/b"))).status == 412
    assert (await call(app, "GET", "/api/v1/exports")).json == {"runs": []}
