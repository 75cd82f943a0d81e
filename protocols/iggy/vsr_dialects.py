"""The dialects of the framing of V and later, and the dialect of a login.

A new dialect has its tables in a module of its own, and a row here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from braidlog.protocols.iggy import fields as f
from braidlog.protocols.iggy import vsr
from braidlog.protocols.iggy.dialects import Dialect
from braidlog.protocols.iggy.layouts_v import V
from braidlog.protocols.iggy.layouts_w import W_DEV, W
from braidlog.protocols.reader import LittleEndianReader

# The last development build whose partitions have no lists of nodes.
_EDGE = re.compile(r"0\.11\.1-edge\.([1-6])$")
FRAMINGS: Final[Mapping[Dialect, vsr.Framing]] = {
    V: vsr.V_FRAMING,
    W: vsr.W_FRAMING,
    W_DEV: vsr.W_FRAMING,
}
VSR_BY_NAME: Final[Mapping[str, Dialect]] = {dialect.name: dialect for dialect in FRAMINGS}


def dialect_of(login: memoryview) -> Dialect | None:
    """Return the dialect of a login by its protocol version; None for a version that is not
    served. Raises ProtocolError.
    """
    reader = LittleEndianReader(login)
    version = reader.u32() >> vsr.PATCH_BITS
    if version == vsr.V_VERSION >> vsr.PATCH_BITS:
        return V
    if version != vsr.W_VERSION >> vsr.PATCH_BITS:
        return None
    f.STR8.read(reader)
    return W_DEV if _EDGE.match(f.STR8.read(reader)) else W
