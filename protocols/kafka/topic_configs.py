"""Kafka's names of a topic's settings, and ours. Knows no request and no topic."""

from __future__ import annotations

from typing import Final

from protocols.kafka.errors import Code

Setting = str | int  # The value of a setting, as the broker keeps it.
CLEANUP: Final = "cleanup.policy"
# Kafka's names of what a topic can set here.
SETTINGS: Final = {
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
}
# What tools set by habit and one broker has anyway: taken, and without effect.
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
    """A topic's or resource's part of a request is answered with this."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def read_config(name: bytes | None, value: bytes | None) -> dict[str, Setting]:
    """One of Kafka's settings as ours; nothing for one without effect. Raises AdminRefused."""
    key = (name or b"").decode(errors="replace")
    text = (value or b"").decode(errors="replace")
    if key == CLEANUP:
        if text != "delete":
            raise AdminRefused(Code.INVALID_CONFIG, f"{CLEANUP}={text} is not served")
        return {}
    if key in SETTINGS:
        try:
            return {SETTINGS[key]: int(text)}
        except ValueError:
            raise AdminRefused(Code.INVALID_CONFIG, f"{key}={text} is no number") from None
    if key not in WITHOUT_EFFECT:
        raise AdminRefused(Code.INVALID_CONFIG, f"no topic has a setting {key}")
    return {}
