"""An example body for each kind of request, for `/openapi.json`. Knows no broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from braidlog.protocols.http.management import exports, importing, messages, users
from braidlog.protocols.http.pip64 import messages as pip64

if TYPE_CHECKING:
    from collections.abc import Mapping

PRODUCED: Final = {
    "messages": [
        {"key": "k1", "value": "hello", "properties": {"source": "curl"}},
        {"value": 7, "eventTime": 1_700_000_000_000},
    ]
}
EXAMPLES: Final[Mapping[type, dict[str, Any]]] = {
    messages.CreateTopic: {"partitions": 3, "settings": {"retention_ms": 86_400_000}},
    messages.AlterTopic: {"partitions": 4, "settings": {"retention_ms": None}},
    importing.ImportRequest: {
        "messages": [{"key": "k1", "value": "hello", "publish_us": 1_700_000_000_000_000}]
    },
    exports.ExportRun: {
        "target": "/lake",
        "group": "nightly",
        "began_us": 1_700_000_000_000_000,
        "seconds": 12.5,
        "rows": 900,
        "files": 1,
        "bytes": 65_536,
        "ranges": [{"topic": "public/default/orders", "partition": 0, "start": 0, "end": 900}],
    },
    users.CreateUser: {"password": "correct horse battery staple", "roles": ["readers"]},
    users.AlterUser: {"roles": ["readers", "writers"]},
    users.CreateToken: {"expires_us": 4_102_444_800_000_000},
    users.Permission: {"subject": "anna", "action": "consume", "resource": "public/default/orders"},
    pip64.ProduceRequest: PRODUCED,
    pip64.CreateConsumer: {
        "name": "worker-1",
        "subscription_type": "Shared",
        "initial_position": "Earliest",
    },
    pip64.UpdateCursor: {"type": "Seek", "position": "earliest"},
}
