"""ApiVersions: what is served. A client then uses the highest version that both sides know."""

from __future__ import annotations

import re
from typing import Final

from braidlog.protocols.kafka.codec import KeptList
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.tables import is_served, ranges
from braidlog.protocols.kafka.wire.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

NAMED_SINCE: Final = 3  # From this version on a client gives its name and version.
# `SOFTWARE_NAME_VERSION_PATTERN` in ApiVersionsRequest.java of apache/kafka.
SOFTWARE: Final = re.compile(rb"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

# Features by which clients and tools choose: name, least version, version. The groups of KIP-848
# and KIP-932 are served; `metadata.version` is that of Kafka 4.3, whose requests are served.
FEATURES: Final = (
    (b"group.version", 0, 1),
    (b"metadata.version", 7, 30),
    (b"share.version", 0, 1),
)
LEVELS: Final = {name: level for name, _, level in FEATURES}
SUPPORTED: Final = KeptList(
    SupportedFeatureKey(name=name, min_version=least, max_version=level)
    for name, least, level in FEATURES
)
FINALIZED: Final = KeptList(
    FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
    for name, _, level in FEATURES
)
# Java's clients of earlier versions fail on a feature whose least version is 0.
LEAST_ZERO_SINCE: Final = 4
SUPPORTED_BEFORE: Final = KeptList(row for row in SUPPORTED if row.min_version > 0)


def api_versions(context: KafkaContext, request: ApiVersionsRequest) -> KafkaAnswer:
    """Answer any version: a version that is not served gets error 35 and the list in the layout of
    version 0, from which every client can choose.
    """
    if request.client_software_name:
        library = b"%s %s" % (request.client_software_name, request.client_software_version or b"")
        context.connection.note_library(library.decode(errors="replace").strip())
    served = is_served(ApiVersionsRequest.KEY, context.version)
    if served and context.version >= NAMED_SINCE:
        texts = (request.client_software_name or b"", request.client_software_version or b"")
        if not all(map(SOFTWARE.fullmatch, texts)):
            return KafkaAnswer(ApiVersionsResponse(error_code=Code.INVALID_REQUEST))
    supported = SUPPORTED if context.version >= LEAST_ZERO_SINCE else SUPPORTED_BEFORE
    code = Code.NONE if served else Code.UNSUPPORTED_VERSION
    return KafkaAnswer(
        ApiVersionsResponse(
            error_code=code,
            api_keys=ranges(),
            supported_features=supported,
            finalized_features_epoch=0,
            finalized_features=FINALIZED,
        )
    )
