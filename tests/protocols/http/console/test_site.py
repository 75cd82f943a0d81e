"""The console's frame: paths, headers, forms, read-only mode, and how it is turned off."""

import subprocess
import sys

import pytest

from tests.protocols.http.asgi import call

TOPIC = "/api/v1/topics/public/default/orders"


async def test_a_page_allows_no_foreign_content(browser):
    page = await browser.get("/ui")
    assert page.status == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert not [name for name in page.attributes if name == "style" or name.startswith("on")]
    assert not [link for link in page.links if "//" in link]


async def test_static_files_are_served_for_ever(browser):
    for name, media_type in [("console.css", "text/css"), ("htmx.min.js", "text/javascript")]:
        answer = await browser.get(f"/ui/static/{name}")
        assert answer.status == 200 and answer.headers["content-type"].startswith(media_type)
        assert "immutable" in answer.headers["cache-control"]
    assert (await browser.get("/ui/static/../site.py")).status == 404


async def test_an_unknown_page_is_not_found(browser):
    assert (await browser.get("/ui/nothing")).status == 404
    assert (await browser.get("/ui/topics/a/b")).status == 404
    assert (await browser.get("/ui/topics/public/default/none")).status == 404


async def test_a_page_is_also_json(browser, app):
    await call(app, "PUT", TOPIC, {"partitions": 2})
    answer = await browser.get("/ui/topics", Accept="application/json")
    assert b'"name":"public/default/orders"' in answer.body


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://elsewhere"},
        {"Origin": "null"},
        {"Origin": "http://["},
    ],
)
async def test_a_form_of_another_site_is_refused(browser, headers):
    page = await browser.get("/ui/sign-in")
    _, fields = page.form("/sign-in")
    answer = await browser.post("/ui/sign-out", fields, **headers)
    assert answer.status == 403 and "another site" in answer.text


async def test_a_form_without_the_browsers_token_is_refused(browser, app):
    page = await browser.get("/ui/sign-in")
    _, fields = page.form("/sign-in")
    assert (await browser.post("/ui/sign-out", fields)).status == 200
    assert (await browser.post("/ui/sign-out", {})).status == 403
    assert (await browser.post("/ui/sign-out", {"form_token": "ä"})).status == 403
    browser.cookie = "braidlog_console=" + "0" * 64
    assert (await browser.post("/ui/sign-out", fields)).status == 403


async def test_a_body_that_is_no_form_is_refused(browser):
    answer = await browser.post("/ui/sign-out", {}, **{"Content-Type": "application/json"})
    assert answer.status == 415


@pytest.mark.parametrize("app", [{"console": "off"}], indirect=True)
async def test_the_console_can_be_turned_off(browser):
    assert (await browser.get("/ui")).status == 404


@pytest.mark.slow
def test_the_listener_starts_without_the_consoles_modules():
    code = (
        "import sys, braidlog.protocols.http.app as app;"
        "assert 'jinja2' not in sys.modules;"
        "assert 'braidlog.protocols.http.console.site' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
