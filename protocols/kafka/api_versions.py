"""ApiVersions: what is served. A client then uses the highest version that both sides know."""

from __future__ import annotations

from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.tables import is_served, ranges
from braidlog.protocols.kafka.wire.api_versions import ApiVersionsRequest, ApiVersionsResponse


def api_versions(context: KafkaContext, request: ApiVersionsRequest) -> KafkaAnswer:
    """Answer any version: a version that is not served gets error 35 and the list in the layout of
    version 0, from which every client can choose.
    """
    if request.client_software_name:
        library = b"%s %s" % (request.client_software_name, request.client_software_version or b"")
        context.connection.note_library(library.decode(errors="replace").strip())
    served = is_served(ApiVersionsRequest.KEY, context.version)
    code = Code.NONE if served else Code.UNSUPPORTED_VERSION
    return KafkaAnswer(ApiVersionsResponse(error_code=code, api_keys=ranges()))
