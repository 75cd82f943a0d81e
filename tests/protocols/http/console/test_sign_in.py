"""Sign-in of browsers by password and token."""

import pytest

from tests.protocols.http.asgi import call

pytestmark = pytest.mark.parametrize(
    "broker", [{"access.required": "true", "access.superusers": "root"}], indirect=True, ids=[""]
)


@pytest.fixture
async def root(broker):
    user, _ = await broker.users.create("root", "secret:ö")
    return user


async def test_a_page_asks_for_a_sign_in_and_comes_back(browser, root):
    page = await browser.get("/ui/topics?contains=a")
    assert page.path.startswith("/ui/sign-in?next=")
    page = await browser.submit(page, "/sign-in", name="root", password="secret:ö")
    assert (page.status, page.path) == (200, "/ui/topics?contains=a")
    assert "root" in page.text


async def test_no_address_of_another_site_comes_next(browser, root):
    for address in ("//[", "http://[", "//evil.example/ui"):
        page = await browser.get(f"/ui/sign-in?next={address}")
        assert page.status == 200 and address not in page.text


async def test_the_cookie_is_out_of_reach_of_scripts_and_changes_at_a_sign_in(browser, root):
    page = await browser.get("/ui/sign-in")
    before = browser.cookie
    assert "HttpOnly" in page.headers["set-cookie"] and "SameSite=lax" in page.headers["set-cookie"]
    await browser.submit(page, "/sign-in", name="root", password="secret:ö")
    assert browser.cookie != before and "secret" not in browser.cookie


async def test_a_wrong_password_is_refused_and_signs_nobody_in(browser, root):
    page = await browser.get("/ui/sign-in")
    page = await browser.submit(page, "/sign-in", name="root", password="wrong")
    assert page.status == 401 and "wrong user name or password" in page.text
    assert (await browser.get("/ui/topics")).path.startswith("/ui/sign-in")


async def test_a_token_signs_in_until_it_is_revoked(browser, broker, root):
    token, _ = await broker.users.create_token(root, "ci", None)
    page = await browser.get("/ui/sign-in")
    action, fields = page.forms[-1]
    page = await browser.post(action, fields | {"token": token})
    assert (page.status, page.path) == (200, "/ui")
    await broker.users.delete_token(broker.users.get("root"), "ci")
    assert (await browser.get("/ui/topics")).path.startswith("/ui/sign-in")


async def test_a_sign_out_ends_the_session(browser, root):
    page = await browser.get("/ui/sign-in")
    page = await browser.submit(page, "/sign-in", name="root", password="secret:ö")
    signed_in = browser.cookie
    assert (await browser.submit(page, "/sign-out")).path == "/ui/sign-in"
    browser.cookie = signed_in
    assert (await browser.get("/ui/topics")).path.startswith("/ui/sign-in")


@pytest.mark.parametrize(
    "address", ["//evil.example/ui", "https://evil.example/ui", "/\\evil.example", "/metrics", ""]
)
async def test_a_sign_in_leads_to_pages_of_the_console_only(browser, root, address):
    page = await browser.get("/ui/sign-in")
    page = await browser.submit(page, "/sign-in", name="root", password="secret:ö", next=address)
    assert page.path == "/ui"


async def test_a_user_sees_no_more_than_the_api_shows(browser, app, broker, root):
    await broker.users.create("anna", "pw")
    page = await browser.get("/ui/sign-in")
    basic = {"Authorization": "Basic cm9vdDpzZWNyZXQ6w7Y="}
    await call(app, "PUT", "/api/v1/topics/public/default/orders", headers=basic)
    page = await browser.submit(page, "/sign-in", name="anna", password="pw")
    assert "public/default/orders" not in page.text
    assert (await browser.get("/ui/topics/public/default/orders")).status == 403
