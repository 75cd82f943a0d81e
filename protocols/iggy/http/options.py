"""Settings of a listener of Iggy's HTTP API."""

from __future__ import annotations

from typing import Annotated

import msgspec

from braidlog.protocols.iggy.options import IggyOptions

MIB = 1024 * 1024


class IggyHttpOptions(IggyOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of a listener of Iggy's HTTP API."""

    # Lifetime of a login's token, as of Iggy's server.
    token_expiry_s: Annotated[float, msgspec.Meta(ge=1, le=31_536_000)] = 3600.0
    # Limit of a body; Iggy's own is 2 MB.
    request_bytes_max: Annotated[int, msgspec.Meta(ge=1024, le=64 * MIB)] = 4 * MIB
    # From the head of a request to the end of its body.
    request_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 30.0
    # Origins of web pages whose scripts may ask, as `http://localhost:5173`; `*` is all.
    allowed_origins: tuple[str, ...] = ()
