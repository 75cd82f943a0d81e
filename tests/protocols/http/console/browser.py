"""A browser without script: keeps the cookie, follows redirects, fills in forms."""

from html.parser import HTMLParser
from urllib.parse import urlencode

import trio

from tests.protocols.http.asgi import AsgiResponse, scope_of

EMPTY = {"meta", "link", "input", "br", "hr", "img"}


class Parsed(HTMLParser):
    """The text, links and forms of a page. Fails on a page whose elements are not balanced."""

    def __init__(self, html):
        super().__init__()
        self.words = []
        self.links = []
        self.forms = []  # Each (action, fields)
        self.attributes = []
        self.elements = []
        self._open = []
        self.feed(html)
        assert not self._open, self._open

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append(tag)
        self.attributes += attributes
        if tag == "form":
            self.forms.append((attributes.get("action"), {}))
        elif tag == "a":
            self.links.append(attributes["href"])
        elif self.forms and tag in ("input", "textarea", "select") and "name" in attributes:
            if attributes.get("type") in ("checkbox", "radio") and "checked" not in attributes:
                return self._opened(tag)
            self.forms[-1][1].setdefault(attributes["name"], attributes.get("value") or "")
        return self._opened(tag)

    def _opened(self, tag):
        if tag not in EMPTY and not self._in_svg():
            self._open.append(tag)

    def _in_svg(self):
        return "svg" in self._open

    def handle_startendtag(self, tag, attrs):
        self.elements.append(tag)

    def handle_endtag(self, tag):
        if self._in_svg() and tag != "svg":
            return
        assert self._open.pop() == tag, tag

    def handle_data(self, data):
        if not self._open or self._open[-1] not in ("script", "style"):
            self.words += data.split()

    @property
    def text(self):
        return " ".join(self.words)


class Visited:
    def __init__(self, answer, path):
        self.status, self.headers, self.path = answer.status, answer.headers, path
        self.body = answer.body
        if answer.headers.get("content-type", "").startswith("text/html"):
            parsed = Parsed(answer.body.decode())
            self.text, self.links, self.forms = parsed.text, parsed.links, parsed.forms
            self.elements, self.attributes = parsed.elements, parsed.attributes

    def form(self, action_ends):
        """Return (action, fields) of the changing form whose action ends so."""
        forms = [form for form in self.forms if "form_token" in form[1]]
        assert forms, (self.status, self.text)
        return next(form for form in forms if form[0].endswith(action_ends))


class Browser:
    def __init__(self, app):
        self._app = app
        self.cookie = None

    async def get(self, path, **headers):
        return await self._visit("GET", path, b"", headers)

    async def post(self, path, fields, **headers):
        """Send a form with exactly these fields."""
        headers = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        return await self._visit("POST", path, urlencode(fields, doseq=True).encode(), headers)

    async def submit(self, page, action_ends, **fields):
        """Fill in a form of a page and send the form."""
        action, form_fields = page.form(action_ends)
        return await self.post(action or page.path, form_fields | fields)

    async def _visit(self, method, path, body, headers):
        answer = await self._ask(method, path, body, headers)
        if answer.status == 303:
            path = answer.headers["location"]
            answer = await self._ask("GET", path, b"", {})
        return Visited(answer, path)

    async def _ask(self, method, path, body, headers):
        if self.cookie is not None:
            headers = {**headers, "Cookie": self.cookie}
        headers = {"Host": "broker:8080", **headers}
        if body:
            headers["Content-Length"] = str(len(body))
        answer, sent = AsgiResponse(), False

        async def receive():
            nonlocal sent
            if sent:
                await trio.sleep_forever()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {k.decode().lower(): v.decode() for k, v in message["headers"]}
            else:
                answer.body += message.get("body", b"")

        await self._app(scope_of(method, path, headers), receive, send)
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer
