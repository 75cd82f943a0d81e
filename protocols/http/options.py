"""Settings of an HTTP listener."""

from typing import Annotated, Final, Literal

import msgspec

MIB = 1024 * 1024
METRICS_SETS: Final = ("braidlog", "pulsar", "kafka")


class RestOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of an HTTP listener."""

    # A body of the management API; usual ones have a few hundred bytes.
    request_bytes_max: Annotated[int, msgspec.Meta(ge=1024, le=64 * MIB)] = MIB
    # A body with messages. It has room for two records of the largest size, in base64 for one.
    produce_bytes_max: Annotated[int, msgspec.Meta(ge=1024, le=64 * MIB)] = 10 * MIB
    # The URL that consumers are told; without it, the Host of their request, which a load balancer
    # may change.
    advertised_url: str = ""
    # A consumer ends if it is not used for so long.
    consumer_idle_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 300.0
    consumers_max: Annotated[int, msgspec.Meta(ge=1)] = 10_000  # Some 5 KB each.
    auto_create_topics: bool = False  # Whether producing creates a missing topic.
    # From the head of a request to the end of its body; a slower client gets an error.
    request_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 30.0
    # Which sets of names `/metrics` uses; they largely say the same.
    metrics_sets: tuple[Literal["braidlog", "pulsar", "kafka"], ...] = METRICS_SETS
    disk_free_bytes_min: Annotated[int, msgspec.Meta(ge=0)] = 64 * MIB  # Not ready below this.
