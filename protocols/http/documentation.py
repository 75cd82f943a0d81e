"""`/openapi.json` and `/docs`. The first request for either makes both documents.

Few users request them, and otherwise every broker would keep the documents, and the modules that
make them, in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.runtime.threads import run_in_thread

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from braidlog.protocols.http.routes import Described

PIECE_BYTES = 32 * 1024
# No scripts at all; styles only within the page.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True, slots=True)
class Documents:
    """The description of every path, for programs and for people."""

    openapi: bytes
    page: bytes


class Document(Response):
    """An answer that all clients share, sent in pieces: for a client that does not receive, only a
    piece stays in memory.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        start = {"type": "http.response.start", "status": self.status_code}
        await send({**start, "headers": self.raw_headers})
        for pos in range(0, len(self.body), PIECE_BYTES):
            piece = bytes(self.body[pos : pos + PIECE_BYTES])
            is_last = pos + PIECE_BYTES >= len(self.body)
            await send({"type": "http.response.body", "body": piece, "more_body": not is_last})


class Documentation:
    """The documents of a listener's routes, made once in a worker thread, because that takes some
    20 ms.
    """

    def __init__(self, described: Sequence[Described], version: str) -> None:
        self._described = described
        self._version = version
        self._documents: Documents | None = None

    async def openapi(self, _: Request) -> Response:
        """The description of every path, as OpenAPI 3.1."""
        return Document((await self._made_documents()).openapi, media_type="application/json")

    async def docs(self, _: Request) -> Response:
        """The description of every path as an HTML page."""
        headers = {"Content-Security-Policy": POLICY}
        return Document(
            (await self._made_documents()).page, headers=headers, media_type="text/html"
        )

    async def _made_documents(self) -> Documents:
        if self._documents is None:
            self._documents = await run_in_thread(self._make)
        return self._documents

    def _make(self) -> Documents:
        import msgspec.json

        from braidlog.protocols.http.openapi import make_document
        from braidlog.protocols.http.page import make_page

        document = make_document(self._described, self._version)
        return Documents(msgspec.json.encode(document), make_page(document).encode())
