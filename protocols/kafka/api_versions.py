"""ApiVersions: what is served. A client then uses the highest version that both sides know."""

from __future__ import annotations

import re
from typing import Final

from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.tables import is_served, ranges
from braidlog.protocols.kafka.wire.api_versions import ApiVersionsRequest, ApiVersionsResponse

NAMED_SINCE: Final = 3  # From this version on a client gives its name and version.
# `SOFTWARE_NAME_VERSION_PATTERN` in ApiVersionsRequest.java of apache/kafka.
SOFTWARE: Final = re.compile(rb"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


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
    code = Code.NONE if served else Code.UNSUPPORTED_VERSION
    return KafkaAnswer(ApiVersionsResponse(error_code=code, api_keys=ranges()))
