"""Authenticates HTTP clients by Basic (RFC 7617), Bearer (RFC 6750) or TLS certificate.

Knows no password and no key; `Authentication` checks them.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from braidlog.broker.errors import NotAuthenticated
from braidlog.protocols.transport.messages import WEBSOCKET
from braidlog.protocols.transport.serving import CERTIFICATE

if TYPE_CHECKING:
    from starlette.requests import Request

    from braidlog.broker.access.authentication import Authentication, Identity


async def identity_of(authentication: Authentication, request: Request) -> Identity | None:
    """Return the client's identity; None if no authentication is required.

    Raises NotAuthenticated, LimitExceeded.
    """
    if not authentication.required:
        return None
    header, at = request.headers.get("authorization"), origin(request)
    if header is None:
        token = request.query_params.get("token")
        if token and WEBSOCKET in request.scope.get(
            "extensions", {}
        ):  # Browsers can send no header.
            return authentication.bearer(token.removeprefix("Bearer ").strip(), at)
        if CERTIFICATE in request.scope:
            return authentication.certificate(request.scope[CERTIFICATE], at)
        raise NotAuthenticated("authentication is needed: Basic, Bearer or a certificate")
    scheme, _, credentials = header.partition(" ")
    if scheme.lower() == "bearer":
        return authentication.bearer(credentials.strip(), at)
    if scheme.lower() != "basic":
        raise NotAuthenticated(f"{scheme} is not known here: Basic and Bearer are")
    name, password = _name_and_password(credentials)
    return await authentication.password(name, password, at)


def origin(request: Request) -> str:
    """Return the protocol and the client's host, in the form of the audit log."""
    return f"http {request.client.host if request.client is not None else ''}"


def _name_and_password(credentials: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(credentials.strip(), validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise NotAuthenticated("what follows Basic is not text in Base64") from error
    name, _, password = text.partition(":")
    return name, password
