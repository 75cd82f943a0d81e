"""ApiVersions: the features by which clients choose."""

import pytest

from braidlog.protocols.kafka.wire.api_versions import ApiVersionsRequest
from tests.protocols.kafka.frames import RawKafka

GROUPS = [(b"group.version", 0, 1), (b"share.version", 0, 1)]
METADATA = (b"metadata.version", 7, 30)


# Kafka 4.3.1 leaves these out, too: Java's clients before 3.9 fail on a least version of 0.
@pytest.mark.parametrize(("version", "supported"), [(3, []), (4, GROUPS)])
async def test_features_with_a_least_version_of_0_are_for_later_versions(
    client: RawKafka, version: int, supported: list[tuple[bytes, int, int]]
) -> None:
    request = ApiVersionsRequest(client_software_name=b"x", client_software_version=b"1")
    reply = await client.call_whole(request, version)
    features = [
        (feature.name, feature.min_version, feature.max_version)
        for feature in reply.supported_features
    ]
    assert features == sorted([*supported, METADATA])
    levels = {feature.name: feature.max_version_level for feature in reply.finalized_features}
    assert levels == {b"group.version": 1, b"metadata.version": 30, b"share.version": 1}
