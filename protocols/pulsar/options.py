"""Settings that only the Pulsar listener has, with Apache's own defaults."""

from typing import Annotated

import msgspec


class PulsarOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of a Pulsar listener; `listeners.NAME.` stands before each in the settings."""

    # How long the client of an older producer or consumer may take to answer a PING before a newer
    # one takes its place; connectionLivenessCheckTimeoutMillis.
    liveness_check_s: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    # Whether clients that know it are told when the broker stored a message, and its offset;
    # Apache's brokerEntryMetadataInterceptors and exposingBrokerEntryMetadataToClientEnabled.
    broker_entry_metadata: bool = False
