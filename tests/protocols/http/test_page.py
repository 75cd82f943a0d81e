"""`/docs`: the page for people. Its commands are run in order on a fresh broker."""

import html
import re
import shutil
from pathlib import Path

import pytest

from braidlog.protocols.http.areas import AREAS, area_of, usual_spelling
from braidlog.protocols.http.samples import SAMPLES
from conformance.server import RunningBroker
from tests.protocols.http.asgi import call
from tests.test_followed_pages import Terminal

API_PAGE = Path(__file__).parents[3] / "docs" / "api.md"
PRE = re.compile(r"<pre><code>(.*?)</code></pre>", re.DOTALL)
SECTION = re.compile(r"<section id='([^']+)'><h3><a href='#\1'><b class='\w+'>(\w+)</b>")


async def page_of(app):
    return (await call(app, "GET", "/docs")).body.decode()


async def document_of(app):
    return (await call(app, "GET", "/openapi.json")).json


def shown(document):
    """The operations that the page shows."""
    return [
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method in methods
        if usual_spelling(path) == path and not path.endswith("{rest}")
    ]


async def test_every_operation_is_shown_once_in_its_usual_spelling(app):
    page, document = await page_of(app), await document_of(app)
    operations = shown(document)
    assert len(SECTION.findall(page)) == len(operations)
    assert len({anchor for anchor, _ in SECTION.findall(page)}) == len(operations)
    for spelling in ("/topics/persistent/{", "/subscriptions/", "/consumers/", "{rest}"):
        sections = page.partition("<section")[2].replace("<wbr>", "").replace("<i>", "")
        assert not re.search(rf"<code>[^<]*/?topics[^<]*{re.escape(spelling)}", sections)
        assert any(spelling in path for path in document["paths"]) or spelling == "{rest}"


async def test_the_page_on_the_api_uses_the_same_spelling(app):
    operations = {
        (method, path.replace("{consumer}", "{id}"))
        for method, path in shown(await document_of(app))
    }
    rows = re.findall(r"^\| \[?(`[A-Z]+ /[^|]*) \|", API_PAGE.read_text(), re.MULTILINE)
    listed = {tuple(call.split()) for row in rows for call in re.findall(r"`([A-Z]+ /[^`?]*)", row)}
    listed -= {("GET", "/openapi.json"), ("GET", "/docs")}
    assert len(listed) > 15
    assert not (listed - operations)


async def test_operations_stand_under_the_headings_of_their_areas(app):
    page = await page_of(app)
    headings = re.findall(r"<h2 id='([^']+)'>([^<]+)</h2>", page)
    assert [name for _, name in headings] == [area.name for area in AREAS] + ["Bodies"]
    for anchor, _ in headings:
        assert f"<a href='#{anchor}'>" in page
    assert len(headings) == len(dict(headings))


@pytest.mark.parametrize(
    ("path", "area"),
    [
        ("/topics/{tenant}/{namespace}/{topic}", "Messages"),
        ("/topics/{tenant}/{namespace}/{topic}/subscription/{subscription}/cursor", "Consumers"),
        ("/api/v1/groups/{tenant}/{namespace}/{topic}/{group}", "Groups"),
        ("/api/v1/groups/{tenant}/{namespace}/{topic}/{group}/positions", "Stored log"),
        ("/admin/v2/namespaces/{tenant}/{namespace}", "Pulsar admin: tenants and namespaces"),
        ("/admin/v2/namespaces/{tenant}/{namespace}/retention", "Pulsar admin: policies"),
        ("/admin/v2/persistent/{tenant}/{namespace}/{name}/stats", "Pulsar admin: topics"),
        ("/admin/v2/clusters", "Pulsar admin: cluster"),
        ("/docs", "This description"),
    ],
)
def test_a_path_belongs_to_the_area_of_its_longest_beginning(path, area):
    assert area_of(path).name == area


async def test_every_link_of_the_page_has_its_target(app):
    page = await page_of(app)
    targets = set(re.findall(r"id='([^']+)'", page))
    links = set(re.findall(r"href='#([^']*)'", page))
    assert links <= targets
    assert not re.search(r"(?:src|href)='(?:https?:)?//", page)
    assert "<script" not in page


async def test_a_summary_is_the_whole_first_paragraph_without_the_errors(app):
    paths = (await document_of(app))["paths"]
    runtime = paths["/admin/v2/brokers/configuration/runtime"]["get"]["summary"]
    assert runtime.startswith("The cluster's name, and settings that programs read, as text.")
    assert runtime.endswith(".")
    for methods in paths.values():
        for operation in methods.values():
            assert operation["summary"].endswith("."), operation["operationId"]
            assert "Raises" not in operation["description"], operation["operationId"]


async def test_every_path_stays_in_the_document_with_its_area_and_usual_spelling(app):
    document = await document_of(app)
    names = {tag["name"] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert set(operation["tags"]) <= names
            usual = operation.get("x-usual-path")
            assert usual is None or (usual != path and usual in document["paths"])


async def test_every_sample_belongs_to_an_operation_that_the_page_shows(app):
    operations = {f"{method} {path}" for method, path in shown(await document_of(app))}
    assert set(SAMPLES) <= operations
    own = {name for name in operations if "/admin/" not in name and "/lookup/" not in name}
    assert own - set(SAMPLES) == {"GET /docs"}
    page = await page_of(app)
    assert sorted(map(html.unescape, PRE.findall(page))) == sorted(SAMPLES.values())


@pytest.mark.slow
def test_the_commands_of_the_page_work_in_order_on_a_fresh_broker():
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    with RunningBroker() as broker:
        terminal = Terminal(broker)
        page = terminal.run("sh", "curl http://127.0.0.1:8080/docs")
        commands = [html.unescape(text) for text in PRE.findall(page)]
        assert len(commands) == len(SAMPLES)
        for command in commands:
            terminal.run("sh", command)
