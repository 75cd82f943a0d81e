"""Every change that the console offers, made with the keyboard alone: Tab, Space, Enter and text.

The same steps run with script and without, at each width.
"""

from playwright.sync_api import Page

TABS_MAX = 200  # Tab presses until an element must have the focus.
GROUP = "act-group"


class Keyboard:
    """A page that is used without a mouse."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url

    def open(self, path):
        """Visit a page of the console; return its status."""
        return self.page.goto(f"{self.url}/ui/{path}", wait_until="load").status

    def reach(self, selector):
        """Press Tab until the element has the focus. Raises AssertionError."""
        wanted = self.page.locator(f"{selector} >> visible=true").first
        wanted.wait_for(timeout=5000)
        for _ in range(TABS_MAX):
            self.page.keyboard.press("Tab")
            if self.page.locator(f":is({selector}):focus").count():
                return
        raise AssertionError(f"Tab does not reach {selector} on {self.page.url}")

    def type(self, selector, text):
        """Replace the text of a field."""
        self.reach(selector)
        self.page.keyboard.press("Control+A")
        self.page.keyboard.type(text)

    def press(self, selector, key="Enter"):
        """Press a button or link."""
        self.reach(selector)
        with self.page.expect_navigation():
            self.page.keyboard.press(key)

    def shows(self, text):
        """Check that the page shows a text. Raises AssertionError."""
        content = self.page.locator("main").inner_text()
        assert text in content, f"{self.page.url} does not show {text!r}: {content[:300]!r}"


def act(keys, ask, name):
    """Make every change, on a topic of that name. Raises AssertionError."""
    topic = f"public/default/{name}"
    keys.open("topics")
    keys.type("input[name=name]", name)
    keys.type("input[name=partitions]", "2")
    keys.press("form[method=post] button:not(.plain)")
    keys.shows("The topic was created.")
    _messages(keys, topic)
    _settings(keys, topic)
    _groups(keys, ask, topic)
    _consumers(keys, ask, topic)
    _purge_and_delete(keys, topic, name)
    _access(keys, name)


def _messages(keys, topic):
    keys.open(f"topics/{topic}/produce")
    keys.type("textarea[name=value]", '{"amount": 17}')
    keys.type("input[name=key]", "k")
    keys.type("textarea[name=properties]", "src=web")
    keys.type("input[name=partition]", "1")
    keys.press("form[action$='/produce'] button")
    keys.shows("Stored as partition 1, offset 0")
    keys.open(f"topics/{topic}/messages")
    keys.type("input[name=where]", 'value.amount == 17 and headers.src == "web"')
    keys.press("form[role=search] button")
    keys.shows("1 matches")
    keys.press("tbody th a")
    keys.shows("Message 0")
    keys.press("a[href*=resend]")
    keys.press("form[action$='/copy'] button")
    keys.shows("1 : 1")
    keys.open(f"topics/{topic}/explain")
    keys.type("input[name=partition]", "1")
    keys.type("input[name=offset]", "0")
    keys.press("form[action$='/explain'] button")
    keys.shows("Nothing hides the record")


def _settings(keys, topic):
    keys.open(f"topics/{topic}/change?setting=retention_ms")
    keys.type("input[name=value]", "2h")
    keys.press("form:has(select[name=setting]) button")
    keys.shows("The change is on disk.")
    keys.open(f"topics/{topic}/change")
    keys.type("input[name=partitions]", "3")
    keys.press("form:has(input[name=partitions]) button")
    keys.shows("now 3")


def _groups(keys, ask, topic):
    path = f"groups/{topic}/{GROUP}"
    ask("PUT", f"/api/v1/{path}/positions", {"positions": {"1": 1}})
    keys.open(path)
    keys.type("input[name=to]", "earliest")
    keys.press("form[action$='/reset'] button")
    keys.press("button.danger")
    keys.shows("The group was moved.")
    keys.reach("input[name=sure]")
    keys.page.keyboard.press("Space")
    keys.press("button.danger")
    keys.shows("Deleted.")


def _consumers(keys, ask, topic):
    path = f"/topics/{topic}/subscription/aa"
    ask("POST", path, {"id": "a1"})
    keys.open("consumers")
    row = f"tr:has(input[value='{topic}'])"
    keys.press(f"{row} form[action$='/consumers'] button")
    keys.shows("Deleted.")


def _purge_and_delete(keys, topic, name):
    keys.open(f"topics/{topic}/change")
    keys.type("form[action$='/purge'] input[name=confirmed_name]", name)
    keys.press("form[action$='/purge'] button")
    keys.shows("All messages were deleted.")
    keys.open(f"topics/{topic}/change")
    keys.type("form[action$='/delete'] input[name=confirmed_name]", "another")
    keys.press("form[action$='/delete'] button")
    keys.shows("type the topic's name to confirm")
    keys.open(f"topics/{topic}/change")
    keys.type("form[action$='/delete'] input[name=confirmed_name]", name)
    keys.press("form[action$='/delete'] button")
    keys.shows("Deleted.")


def _access(keys, name):
    user = f"user-{name}"
    keys.open("access")
    keys.type("form.panel[action$='/users'] input[name=user]", user)
    keys.press("form.panel[action$='/users'] button")
    keys.shows(user)
    keys.type("form.panel[action$='/tokens'] input[name=user]", user)
    keys.type("form.panel[action$='/tokens'] input[name=token]", "ci")
    keys.press("form.panel[action$='/tokens'] button")
    keys.shows("shown only now")
    keys.type("form.panel[action$='/permissions'] input[name=subject]", user)
    keys.type("form.panel[action$='/permissions'] input[name=resource]", "public/default")
    keys.press("form.panel[action$='/permissions'] button")
    keys.shows("public/default")
    keys.open(f"access?subject={user}")
    keys.press("form:has(input[value=revoke]) button")
    keys.shows("The change is on disk.")
