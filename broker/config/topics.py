"""Settings of `topics`: the creation of topics, and limits of their clients. Reads no file."""

from typing import Annotated

import msgspec

AtLeastZero = Annotated[int, msgspec.Meta(ge=0)]


class TopicsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Creation of topics, and limits of their clients."""

    auto_create: bool = (
        True  # At listeners whose clients expect it; a listener may have its own switch.
    )
    num_partitions: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    # Of Pulsar producers; Kafka producers ask for deduplication themselves.
    deduplication: bool = False
    # Limits of Pulsar's policies, for namespaces and topics without their own; `none` or 0: none.
    producers_max: AtLeastZero | None = None
    consumers_max: AtLeastZero | None = None
    subscription_consumers_max: AtLeastZero | None = None
    subscriptions_max: AtLeastZero | None = None
    unacked_consumer_max: AtLeastZero | None = 50_000
    unacked_subscription_max: AtLeastZero | None = 200_000
    message_bytes_max: AtLeastZero | None = None
    topics_max: AtLeastZero | None = None
    publish_rate_messages: AtLeastZero | None = None
    publish_rate_bytes: AtLeastZero | None = None
    dispatch_rate_messages: AtLeastZero | None = None
    dispatch_rate_bytes: AtLeastZero | None = None
    subscription_dispatch_rate_messages: AtLeastZero | None = None
    subscription_dispatch_rate_bytes: AtLeastZero | None = None
    subscribe_rate: AtLeastZero | None = None
