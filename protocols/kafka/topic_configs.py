"""Translates Kafka's names of a topic's settings to the broker's. Knows no request and no topic."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Final

from braidlog.protocols.kafka.errors import Code

Setting = str | int  # The value of a setting, as the broker keeps it.
CLEANUP: Final = "cleanup.policy"
DIRTY_RATIO: Final = "min.cleanable.dirty.ratio"
PPM: Final = 1_000_000
# Kafka's names of what a topic can set here.
SETTINGS: Final = {
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
    CLEANUP: "cleanup_policy",
    DIRTY_RATIO: "min_dirty_ppm",
    "min.compaction.lag.ms": "min_compaction_lag_ms",
    "delete.retention.ms": "delete_retention_ms",
}
POLICIES: Final = {
    frozenset(("delete",)): "delete",
    frozenset(("compact",)): "compact",
    frozenset(("compact", "delete")): "compact,delete",
}
# What tools set by habit and the broker does not need: accepted, without effect.
WITHOUT_EFFECT: Final = frozenset(
    (
        "compression.type",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "message.downconversion.enable",
        "message.timestamp.type",
        "min.insync.replicas",
        "preallocate",
        "segment.index.bytes",
        "segment.jitter.ms",
        "unclean.leader.election.enable",
    )
)


class AdminRefused(Exception):
    """The part of a request for one topic or resource is answered with this."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def read_config(name: bytes | None, value: bytes | None) -> dict[str, Setting]:
    """Translate one Kafka setting; empty for one without effect. Raises AdminRefused."""
    key = (name or b"").decode(errors="replace")
    text = (value or b"").decode(errors="replace")
    if key == CLEANUP:
        policy = POLICIES.get(frozenset(part.strip() for part in text.split(",")))
        if policy is None:
            raise AdminRefused(Code.INVALID_CONFIG, f"{CLEANUP}={text} is not served")
        return {SETTINGS[CLEANUP]: policy}
    if key in SETTINGS:
        try:
            return {SETTINGS[key]: _ppm(text) if key == DIRTY_RATIO else int(text)}
        except ValueError:
            raise AdminRefused(Code.INVALID_CONFIG, f"{key}={text} is not such a number") from None
    if key not in WITHOUT_EFFECT:
        raise AdminRefused(Code.INVALID_CONFIG, f"no topic has a setting {key}")
    return {}


def shown(key: str, value: Setting | bool | None) -> bytes:
    """A setting's value as Kafka's clients write it."""
    if value is None:
        return b"-1"
    if key == DIRTY_RATIO:
        return str(Decimal(value) / PPM).encode()
    return str(value).encode()


def _ppm(text: str) -> int:
    """A ratio in millionths. Raises ValueError for anything else, or for a finer one."""
    try:
        ppm = Decimal(text) * PPM
    except InvalidOperation:
        raise ValueError(text) from None
    if not (ppm.is_finite() and 0 <= ppm <= PPM and ppm == int(ppm)):
        raise ValueError(text)
    return int(ppm)
