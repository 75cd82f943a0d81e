"""Settings of an HTTP listener."""

from typing import Annotated, Final, Literal

import msgspec

MIB = 1024 * 1024
METRICS_SETS: Final = ("braidlog", "pulsar", "kafka")


class RestOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of an HTTP listener."""

    # Limit of a management API body; usual bodies have a few hundred bytes.
    request_bytes_max: Annotated[int, msgspec.Meta(ge=1024, le=64 * MIB)] = MIB
    # Limit of a body with messages: two records of the largest size, or a single record in base64.
    produce_bytes_max: Annotated[int, msgspec.Meta(ge=1024, le=64 * MIB)] = 10 * MIB
    # The URL that consumers receive. By default the Host header of their request, which a load
    # balancer may change.
    advertised_url: str = ""
    # Idle timeout of a consumer.
    consumer_idle_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 300.0
    consumers_max: Annotated[int, msgspec.Meta(ge=1)] = 10_000  # Some 5 KB each.
    # WebSocket connections (Pulsar's API), and a message that such a client sends: Apache's
    # webSocketMaxTextFrameSize.
    websockets_max: Annotated[int, msgspec.Meta(ge=0)] = 1000
    websocket_bytes_max: Annotated[int, msgspec.Meta(ge=1024, le=64 * MIB)] = MIB
    auto_create_topics: bool = False  # Create a missing topic on produce.
    # From the head of a request to the end of its body; a slower client gets an error.
    request_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 30.0
    # The sets of names that `/metrics` uses; their contents largely agree.
    metrics_sets: tuple[Literal["braidlog", "pulsar", "kafka"], ...] = METRICS_SETS
    # Series with a topic's name in an answer of `/metrics`, some 100 bytes each.
    metrics_series_max: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 200_000
    # Below this free space the broker is not ready.
    disk_free_bytes_min: Annotated[int, msgspec.Meta(ge=0)] = 64 * MIB
    # The pages at `/ui`: with changes, without changes, or no pages.
    console: Literal["on", "read_only", "off"] = "on"
