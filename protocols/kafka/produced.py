"""Results of Produce requests, as the handler collects them, and as the generated structures have
them. Knows no bytes.
"""

from collections.abc import Iterator, Mapping, Sequence

from braidlog.protocols.kafka.messages import ProduceRequest, StoredSet
from braidlog.protocols.kafka.schema import NO_UUID
from braidlog.protocols.kafka.wire.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

Produced = PartitionProduceResponse
Results = list[Produced | StoredSet]


def sets_of(request: ProduceRequest) -> Iterator[tuple[bytes | None, int, memoryview]]:
    """Yield topic, partition and set of each set of a request."""
    for name, sets in request.topics.items():
        for index, message_set in sets.items():
            yield name, index, message_set


def produced_of(result: Produced | StoredSet) -> Produced:
    """Return the structure of a result."""
    if isinstance(result, Produced):
        return result
    index, base_offset, start = result
    return Produced(index=index, base_offset=base_offset, log_start_offset=start)


def reply_of(topics: Mapping[bytes | None, Sequence[Produced | StoredSet]]) -> ProduceResponse:
    """Return the reply with the results of each topic, by name or id."""
    responses = [
        TopicProduceResponse(
            name=key,  # A version has either names or ids of topics.
            topic_id=key or NO_UUID,
            partition_responses=[produced_of(result) for result in results],
        )
        for key, results in topics.items()
    ]
    return ProduceResponse(responses=responses)
