"""The console in a real browser: Debian's Chromium, driven by playwright.

    .venv/bin/python -m pip install playwright; apt-get install chromium
    .venv/bin/python -m conformance.console --url http://127.0.0.1:8080 --pictures FOLDER

Stores a few topics and hostile messages in the broker at --url, visits every page at 360 and 1,400
pixels, light and dark, with script and without, and tries the live tail and the keyboard. Exits
with 1 after a failure.
"""

import argparse
import json
import sys
import urllib.request
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

TOPIC = "public/default/console-check"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(1)</script>\u202egnp.exe"
PAGES = (
    "topics",
    f"topics/{TOPIC}",
    f"topics/{TOPIC}/messages",
    f"topics/{TOPIC}/messages/0/0",
    f"topics/{TOPIC}/produce?resend=0:0",
    f"topics/{TOPIC}/change",
    f"topics/{TOPIC}/tail",
    "groups",
    f"groups/{TOPIC}/billing",
    f"groups/{TOPIC}/billing/reset?to=earliest",
    "broker",
    "access",
    "sign-in",
)
WIDTHS = (360, 1400)


class Check:
    """A run against a broker; counts failures."""

    def __init__(self, url, pictures):
        self.url = url
        self.pictures = pictures
        self.failures = 0

    def expect(self, is_so, text):
        """Count and print a failure."""
        if not is_so:
            self.failures += 1
            print(f"FAIL {text}", file=sys.stderr)

    def ask(self, method, path, body=None):
        """Call the HTTP API."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    def produce(self, *values):
        """Store messages in partition 0."""
        messages = [
            {"value": value, "key": value, "properties": {"src": value}} for value in values
        ]
        self.ask("POST", f"/topics/{TOPIC}/partitions/0", {"messages": messages})

    def prepare(self):
        """Make the topic and a group."""
        self.ask("PUT", f"/api/v1/topics/{TOPIC}", {"partitions": 2})
        self.produce(HOSTILE, "plain", '{"amount": 1}')
        group = f"/api/v1/groups/{TOPIC}/billing/positions"
        self.ask("PUT", group, {"positions": {"0": 1}})

    def visit_all(self, browser: Browser):
        """Visit every page in each form."""
        for scheme in ("light", "dark"):
            for width in WIDTHS:
                for script in (True, False):
                    self._visit(browser, scheme, width, script)

    def _visit(self, browser, scheme, width, script):
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=script,
        )
        page = context.new_page()
        place = f"{width} px, {scheme}, script {'on' if script else 'off'}"
        page.on("console", lambda message: self.expect(False, f"{place}: {message.text}"))
        page.on("pageerror", lambda error: self.expect(False, f"{place}: {error}"))
        page.on("dialog", lambda dialog: self.expect(False, f"{place}: contents ran as script"))
        page.on("request", self._only_this_host)
        for path in PAGES:
            answer = page.goto(f"{self.url}/ui/{path}", wait_until="load")
            self.expect(answer.status == 200, f"{path} ({place}): status {answer.status}")
            self.expect(page.locator("h1").count() == 1, f"{path} ({place}): not one heading")
            if script:
                wide = page.evaluate("document.documentElement.scrollWidth")
                self.expect(wide <= width, f"{path} ({place}): {wide} pixels wide")
            if script and self.pictures is not None:
                name = path.partition("?")[0].replace("/", "-")
                page.screenshot(path=self.pictures / f"{name}-{width}-{scheme}.png")
        context.close()

    def _only_this_host(self, request):
        self.expect(request.url.startswith(self.url), f"a request for {request.url}")

    def tail(self, page: Page):
        """The live tail shows new messages, stops and resumes."""
        page.goto(f"{self.url}/ui/topics/{TOPIC}/tail")
        state, toggle = page.locator("#state"), page.locator("#toggle")
        page.locator("#state", has_text="Waiting").wait_for()
        self.produce(HOSTILE)
        page.locator("#rows tr").first.wait_for()
        self.expect(page.locator("#rows img").count() == 0, "a message became markup in the tail")
        toggle.click()
        self.expect(state.inner_text() == "Stopped.", "the live tail does not stop")
        self.produce("while stopped")
        toggle.click()
        page.locator("#state", has_text="Waiting").wait_for()
        self.produce("resumed")
        page.locator("#rows .value", has_text="resumed").first.wait_for()
        self.expect(
            page.locator("#rows", has_text="while stopped").count() == 0, "a stopped tail goes on"
        )

    def refresh(self, page: Page):
        """The list of groups refreshes by itself."""
        page.goto(f"{self.url}/ui/groups")
        self.produce("more lag")
        page.locator(".worse").first.wait_for(timeout=20_000)

    def keyboard(self, page: Page):
        """A topic is found with the keyboard alone."""
        page.goto(f"{self.url}/ui/topics")
        page.keyboard.press("Tab")
        focused = page.evaluate("document.activeElement.textContent")
        self.expect(
            focused == "Skip to the contents", "the first Tab does not lead to the skip link"
        )
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.type("console-check")
        page.keyboard.press("Enter")
        page.wait_for_url("**contains=console-check**")
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == TOPIC:
                break
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/ui/topics/{TOPIC}")


def main():
    """Run all checks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--pictures", type=Path, help="folder for a picture of each page")
    options = parser.parse_args()
    check = Check(options.url.rstrip("/"), options.pictures)
    check.prepare()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=options.chromium, args=["--no-sandbox"]
            )
            check.visit_all(browser)
            page = browser.new_page()
            check.keyboard(page)
            check.tail(page)
            check.refresh(page)
            browser.close()
    finally:
        check.ask("DELETE", f"/api/v1/topics/{TOPIC}")
    print(f"{len(PAGES)} pages in 8 forms, keyboard, live tail, refresh: {check.failures} failures")
    sys.exit(1 if check.failures else 0)


if __name__ == "__main__":
    main()
