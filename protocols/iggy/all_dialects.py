"""The dialects of the classic framing, built from their tables, and the possible dialects of a
login.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.iggy import fields as f
from braidlog.protocols.iggy import forms
from braidlog.protocols.iggy import layouts as requests
from braidlog.protocols.iggy import reply_layouts as records
from braidlog.protocols.iggy.dialects import (
    Behaviour,
    Dialect,
    ErrorStyle,
    PayloadLayout,
    RequestLayout,
)
from braidlog.protocols.iggy.errors import ErrorCode
from braidlog.protocols.iggy.messages import CommandCode
from braidlog.protocols.iggy.partitioning import murmur3_from_one, xxhash32_from_zero
from braidlog.protocols.iggy.replies import ClientInfo
from braidlog.protocols.reader import LittleEndianReader

VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")

_MADE = frozenset(
    {
        CommandCode.CREATE_STREAM,
        CommandCode.CREATE_TOPIC,
        CommandCode.CREATE_GROUP,
        CommandCode.CREATE_USER,
    }
)
_SNAPSHOT = frozenset({int(CommandCode.GET_SNAPSHOT)})

D0 = Dialect(
    "D0",
    "Rust crate 0.0.60 to 0.0.89",
    requests=requests.D0_REQUESTS,
    records=records.D0_RECORDS,
    silent=_MADE,
    key_partition=murmur3_from_one,
    behaviour=Behaviour(
        closes=True,
        needs_partition=True,
        group_takes_partition=False,
        number_first=True,
        users_from=1,
    ),
    error_numbers={
        ErrorCode.GROUP_NAME_NOT_FOUND: 5000,
        ErrorCode.GROUP_NAME_ALREADY_EXISTS: 5001,
        ErrorCode.GROUP_MEMBER_NOT_FOUND: 5002,
        ErrorCode.INVALID_GROUP_ID: 5003,
    },
)
D0_WITH_LOGIN = Dialect(
    "D0 with login",
    "Rust crate 0.0.75 to 0.0.89",
    requests=requests.D0_REQUESTS,
    records={**records.D0_RECORDS, ClientInfo: records.D1A_RECORDS[ClientInfo]},
    silent=_MADE,
    key_partition=murmur3_from_one,
    behaviour=D0.behaviour,
    error_numbers=D0.error_numbers,
)
D1A = Dialect(
    "D1a",
    "Rust crate 0.0.92 to 0.1.6, iggy-py 0.1.0",
    requests=requests.D1A_REQUESTS,
    records=records.D1A_RECORDS,
    silent=_MADE,
    behaviour=Behaviour(needs_partition=True, group_takes_partition=False, users_from=1),
)
D1B = Dialect(
    "D1b",
    "Rust crate 0.1.7 to 0.4, iggy-py 0.2.0 to 0.2.2",
    requests=requests.D1B_REQUESTS,
    records=records.D1B_RECORDS,
    silent=_MADE,
    behaviour=D1A.behaviour,
)
D2 = Dialect(
    "D2",
    "Rust crate 0.5 and 0.6, iggy-py 0.2.3 to 0.4",
    requests=requests.D2_REQUESTS,
    records=records.D2_RECORDS,
    unserved=_SNAPSHOT,
    behaviour=Behaviour(users_from=1),
)
D3 = Dialect(
    "D3",
    "Rust crate 0.7, apache-iggy 0.5",
    requests=requests.D3_REQUESTS,
    records=records.D2_RECORDS,
    unserved=_SNAPSHOT,
    behaviour=Behaviour(users_from=1),
    form=forms.CRC_FORM,
)
D4 = Dialect(
    "D4",
    "Rust crate 0.8, apache-iggy 0.6, Java 0.6",
    requests=requests.D4_REQUESTS,
    records=records.D4_RECORDS,
    unserved=_SNAPSHOT,
    key_partition=xxhash32_from_zero,
    form=forms.XXH_FORM,
)
D5 = Dialect(
    "D5",
    "Rust crate 0.9 and 0.10, apache-iggy 0.7 and 0.8, Java 0.7 and 0.8",
    requests=requests.D5_REQUESTS,
    records=records.D5_RECORDS,
    unserved=_SNAPSHOT,
    key_partition=xxhash32_from_zero,
    behaviour=Behaviour(cooperative_join=True, lists_missing_stream=True),
    form=forms.TYPED_FORM,
)

Candidates = tuple[Dialect, ...]

WITH_LOGIN: Candidates = (D5, D4, D3, D2, D1B, D1A)
BY_NAME = {dialect.name: dialect for dialect in (*WITH_LOGIN, D0, D0_WITH_LOGIN)}


def _exact(layouts: Mapping[int, PayloadLayout]) -> Mapping[int, PayloadLayout]:
    """Return the same layouts, without further bytes at the end."""
    return {
        code: replace(layout, rest=False) if isinstance(layout, RequestLayout) else layout
        for code, layout in layouts.items()
    }


# D0 accepts extra bytes at the end. A first frame that fits without extra bytes is certainly D0; a
# frame with extra bytes may also be of a later dialect, which accepts extra bytes too.
D0_EXACT = _exact(requests.D0_REQUESTS)
LATER_EXACT = tuple(_exact(dialect.requests) for dialect in WITH_LOGIN)

_WITHOUT_VERSION: Candidates = (D1B, D1A, D0_WITH_LOGIN)
_VERSION_UNKNOWN: Candidates = (D5, D4, D3, D2)
# By the crate's version. Go's client sends a version of its own, which may equal that of an earlier
# crate, so from 0.7 on the layout of a SEND or POLL may still move the connection to another
# dialect.
_BY_CRATE: dict[tuple[int, int], Candidates] = {
    (0, 5): (D2,),
    (0, 6): (D2,),
    (0, 7): (D3, D5, D4),
    (0, 8): (D4, D5, D3),
    (0, 9): (D5,),
    (0, 10): (D5,),
}
# Java's client 0.6 (D4) and the client before (D3) send the same version and context: those of an
# old crate.
_BY_LOGIN: dict[tuple[str, str], Candidates] = {("0.6.30", "java-sdk"): (D4, D3, D2)}


def candidates_of_login(payload: memoryview) -> tuple[Candidates, ErrorStyle]:
    """Return the possible dialects of a login, the likeliest first.

    Rust and Python clients send the crate's version and an empty context; Node sends neither. C#
    and Java name themselves in the context; their version is a fixed text or their own version, and
    does not show the dialect. Raises ProtocolError if the payload is not a login of any dialect.
    """
    reader = LittleEndianReader(payload)
    f.STR8.read(reader)
    f.STR8.read(reader)
    if not reader.left:
        # D1b reads the text of a refused login; the other dialects only lose a connection that is
        # refused anyway.
        return _WITHOUT_VERSION, ErrorStyle(error_text=True, absent_is_error=True)
    client_name, context = f.STR32.read(reader), f.STR32.read(reader)
    if reader.left:
        raise ProtocolError(f"{reader.left} bytes too many in a login")
    version = None if context else _parsed(client_name)
    if version is None:
        return _BY_LOGIN.get((client_name, context), _VERSION_UNKNOWN), ErrorStyle()
    error_style = ErrorStyle(
        error_text=(0, 2, 5) <= version < (0, 6, 60), absent_is_error=version < (0, 6, 10)
    )
    return _BY_CRATE.get(version[:2], _VERSION_UNKNOWN), error_style


def error_style_for(error_style: ErrorStyle, candidates: Candidates) -> ErrorStyle:
    """Return the error style of a client without a version, after its possible dialects
    have changed.
    """
    if candidates[0] in _WITHOUT_VERSION:
        return ErrorStyle(error_text=candidates == (D1B,), absent_is_error=True)
    return error_style


def _parsed(version: str) -> tuple[int, int, int] | None:
    """Return major, minor and patch; None if the text does not begin like a version."""
    match = VERSION.match(version)
    if match is None:
        return None
    major, minor, patch = match.groups(default="0")
    return int(major), int(minor), int(patch)
