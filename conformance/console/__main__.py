"""The console in a real browser: Debian's Chromium, driven by playwright.

    .venv/bin/python -m pip install playwright pillow; apt-get install chromium
    .venv/bin/python -m conformance.console --url http://127.0.0.1:8080

Stores a few topics and hostile messages in the broker at --url, visits every page at 360 and 1,400
pixels, light and dark, with script and without, makes every change with the keyboard alone, and
tries the live tail. `--topics 10000` creates topics and times the pages, `--pictures FOLDER`
saves each page in each form, `--docs FOLDER` a small picture of each page. Exits with 1 after a
failure.
"""

import argparse
import json
import sys
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from conformance.console.actions import Keyboard, act

TOPIC = "public/default/console-check"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(1)</script>\u202egnp.exe"
HOSTILES = (
    HOSTILE,
    "</pre></bdi><svg/onload=alert(1)>",
    '" autofocus onfocus="alert(1)',
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "\u2066\u202eabc\u2069\u0000\u0007\x1b[31m",
    '{"a": "</script><script>alert(1)</script>"}',
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "x" * 100_000,
)
GROUP = "billing"
# Each page, and the name of its picture in the documentation.
PAGES = {
    "overview": "overview",
    "topics?sort=size": "topics",
    f"topics/{TOPIC}": "topic",
    f"topics/{TOPIC}/messages": "messages",
    f"topics/{TOPIC}/messages/0/2": "message",
    f"topics/{TOPIC}/messages/0/0": "",
    f"topics/{TOPIC}/produce?resend=0:2": "produce",
    f"topics/{TOPIC}/change": "change",
    f"topics/{TOPIC}/tail": "tail",
    f"topics/{TOPIC}/explain?partition=0&offset=0&reader=iggy&group={GROUP}": "explain",
    "groups?sort=lag": "groups",
    f"groups/{TOPIC}/{GROUP}": "group",
    f"groups/{TOPIC}/{GROUP}/reset?to=earliest": "reset",
    "broker": "broker",
    "consumers": "consumers",
    "exports": "exports",
    "about": "about",
    "access": "access",
    "audit": "audit",
    "sign-in": "sign-in",
}
WIDTHS = (360, 1400)
LISTS = (
    "overview",
    "topics",
    "topics?sort=size",
    "topics?contains=many-09",
    "groups",
    "groups?sort=lag",
    "broker",
)
PAGE_S = 0.1  # Largest time of a page.
TRIES = 5


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
            {"value": value, "key": value[:200], "properties": {"src": value[:200]}}
            for value in values
        ]
        self.ask("POST", f"/topics/{TOPIC}/partitions/0", {"messages": messages})

    def prepare(self):
        """Make the topic and a group."""
        self.ask("PUT", f"/api/v1/topics/{TOPIC}", {"partitions": 2})
        self.produce(HOSTILE, "plain", '{"customer": "c1", "amount": 1}', *HOSTILES)
        group = f"/api/v1/groups/{TOPIC}/{GROUP}/positions"
        self.ask("PUT", group, {"positions": {"0": 1}})
        self.ask("POST", f"/topics/{TOPIC}/subscription/{GROUP}", {"id": "c1", "name": "worker-1"})
        ranges = [
            {"topic": TOPIC, "partition": number % 2, "start": 0, "end": 900} for number in range(7)
        ]
        counts = {"rows": 900, "files": 2, "bytes": 65_536, "dead_letters": 2}
        run = {"target": HOSTILE, "group": HOSTILE, "began_us": 1_700_000_000_000_000}
        run |= {"seconds": 12.5, "ranges": ranges, **counts}
        self.ask("POST", "/api/v1/exports", run)

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
            images = page.locator("main img").count() + page.locator("main script").count()
            self.expect(not images, f"{path} ({place}): contents became markup")
        context.close()

    def act_all(self, browser: Browser):
        """Make every change with the keyboard, at each width, with script and without."""
        for width in WIDTHS:
            for script in (True, False):
                context = browser.new_context(
                    viewport={"width": width, "height": 900}, java_script_enabled=script
                )
                name = f"act-{width}-{'script' if script else 'plain'}"
                try:
                    act(Keyboard(context.new_page(), self.url), self.ask, name)
                except (AssertionError, PlaywrightError) as error:
                    self.expect(False, f"{name}: {error}")
                finally:
                    context.close()
                    self.ask("DELETE", f"/api/v1/users/user-{name}")

    def draw(self, browser: Browser, folder: Path):
        """Save a small picture of each page."""
        from conformance.console.pictures import HEIGHT, WIDTH, save_picture

        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        for path, name in PAGES.items():
            if name:
                page.goto(f"{self.url}/ui/{path}", wait_until="load")
                save_picture(page, folder / f"{name}.png")

    def many_topics(self, count: int):
        """Create topics, half of them with a group, and print the time of each list."""
        for number in range(count):
            topic = f"public/default/many-{number:05}"
            self.ask("PUT", f"/api/v1/topics/{topic}", {})
            if number % 2:
                path = f"/api/v1/groups/{topic}/billing/positions"
                self.ask("PUT", path, {"positions": {"0": 0}})
        for path in LISTS:
            self._time(path, count)

    def _time(self, path, count):
        """Print the time of a page: the best of five, since other programs may run."""
        seconds = []
        for _ in range(TRIES):
            begun = time.perf_counter()
            self.ask("GET", f"/ui/{path}")
            seconds.append(time.perf_counter() - begun)
        print(f"{path}: {min(seconds) * 1000:.0f} ms with {count} topics")
        self.expect(min(seconds) <= PAGE_S, f"{path} takes more than {PAGE_S} s")

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
    parser.add_argument("--pictures", type=Path, help="folder for a picture of each page and form")
    parser.add_argument("--docs", type=Path, help="folder for a small picture of each page")
    parser.add_argument("--topics", type=int, default=0, help="topics to create for the timing")
    options = parser.parse_args()
    check = Check(options.url.rstrip("/"), options.pictures)
    check.prepare()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=options.chromium, args=["--no-sandbox"]
            )
            if options.docs is not None:
                check.draw(browser, options.docs)
            check.visit_all(browser)
            check.act_all(browser)
            page = browser.new_page()
            check.keyboard(page)
            check.tail(page)
            check.refresh(page)
            browser.close()
    finally:
        check.ask("DELETE", f"/api/v1/topics/{TOPIC}")
    if options.topics:
        check.many_topics(options.topics)
    done = f"{len(PAGES)} pages in 8 forms, every change by keyboard in 4 forms"
    print(f"{done}, live tail, refresh: {check.failures} failures")
    sys.exit(1 if check.failures else 0)


if __name__ == "__main__":
    main()
