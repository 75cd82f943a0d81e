"""Schemas in Pulsar's admin API. Pulsar's and HTTP's producers use the same registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.config.wording import explain
from braidlog.broker.topics.schema_rules import load_parser
from braidlog.broker.topics.schemas import (
    IncompatibleSchema,
    SchemaMeta,
    compatible,
    latest_version,
    schema_of,
    strategy_of,
    version_of,
)
from braidlog.protocols.http.errors import (
    INCOMPATIBLE_SCHEMA,
    SCHEMA_NOT_FOUND,
    UNREADABLE_SCHEMA,
    RequestRefused,
)
from braidlog.protocols.http.path_names import name_of
from braidlog.protocols.http.pulsar_admin.answers import json_answer
from braidlog.protocols.http.pulsar_admin.handlers import AdminHandlers
from braidlog.protocols.http.pulsar_admin.names import topic_of
from braidlog.protocols.http.pulsar_admin.topics import path_number
from braidlog.protocols.http.routes import made_by_itself
from braidlog.protocols.http.values import types
from braidlog.protocols.http.values.definitions import known_type
from braidlog.protocols.http.values.jsontext import RepeatedName, check_names, compact
from braidlog.protocols.http.values.primitives import BadValue
from braidlog.protocols.http.values.values import join_pair, split_pair, value_codec

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic


class _Pair(msgspec.Struct):
    """The definition of a KEY_VALUE in the admin API's form; "" is a part without a definition."""

    key: msgspec.Raw
    value: msgspec.Raw


class AdminSchemas(AdminHandlers):
    """Handlers of a broker's schemas."""

    async def latest(self, request: Request) -> Response:
        """The newest schema of a topic."""
        topic = self._topic(request)
        return json_answer(_shown(topic, latest_version(topic.meta.schemas)))

    async def of_version(self, request: Request) -> Response:
        """The schema of one version."""
        version = path_number(request, "version", 2**31)
        return json_answer(_shown(self._topic(request), version))

    async def all_versions(self, request: Request) -> Response:
        """Every version of a topic's schema."""
        topic = self._broker.topics.find(name_of(request)[0])
        shown = []
        if topic is not None and latest_version(topic.meta.schemas) is not None:
            schemas = enumerate(topic.meta.schemas)
            shown = [_shown(topic, version) for version, meta in schemas if not meta.is_deletion]
        return json_answer({"getSchemaResponses": shown})

    async def version(self, request: Request) -> Response:
        """The version of a schema; -1 if the topic does not have that schema."""
        schema = _read(await self._body(request))
        topic = self._broker.topics.find(name_of(request)[0])
        version = None if topic is None else version_of(topic, schema)
        return json_answer({"version": -1 if version is None else version})

    async def metadata(self, request: Request) -> Response:
        """The place of each version; an empty answer without a schema."""
        topic = self._broker.topics.find(name_of(request)[0])
        if topic is None or not topic.meta.schemas:
            return Response(status_code=200)
        places = [
            {"ledgerId": topic.meta.topic_id, "entryId": version, "version": version}
            for version in range(len(topic.meta.schemas))
        ]
        return json_answer({"info": places[-1], "index": places})

    async def post(self, request: Request) -> Response:
        """Register a schema; the answer has the new version."""
        schema = _read(await self._body(request))
        await load_parser()
        topic = await self._topic_for(request)
        try:
            version, ticket = self._broker.schemas.add(topic, schema)
        except IncompatibleSchema as error:
            raise RequestRefused(INCOMPATIBLE_SCHEMA, str(error)) from None
        await self._broker.durability.reached(ticket)
        return json_answer({"version": {"version": version}})

    async def compatibility(self, request: Request) -> Response:
        """Check that a schema could be registered."""
        schema = _read(await self._body(request))
        await load_parser()
        topic, _ = topic_of(self._broker, request)
        fits = True
        try:
            if version_of(topic, schema) is None:
                compatible(topic, schema)
        except IncompatibleSchema:
            fits = False
        strategy = strategy_of(topic).name  # Apache's names.
        answer = json_answer({"compatibility": fits, "schemaCompatibilityStrategy": strategy})
        answer.status_code = 202
        return answer

    async def delete(self, request: Request) -> Response:
        """Delete a topic's schema; the answer has the version that records the deletion.

        The version is a number here, as Java's admin client reads it. Earlier versions stay for the
        records that name them.
        """
        topic = self._topic(request)
        if latest_version(topic.meta.schemas) is None:
            raise RequestRefused(SCHEMA_NOT_FOUND, "Schema not found")
        try:
            version, ticket = self._broker.schemas.delete(topic)
        except IncompatibleSchema as error:
            raise RequestRefused(INCOMPATIBLE_SCHEMA, str(error)) from None
        await self._broker.durability.reached(ticket)
        return json_answer({"version": version})

    async def _topic_for(self, request: Request) -> Topic:
        """Return the topic of a new schema, which is created if clients may create topics.

        Apache stores a schema without its topic. Raises TopicNotFound, NotAuthorized.
        """
        name, index = name_of(request)
        if index is None and self._broker.topics.find(name) is None:
            return await made_by_itself(self._broker, request, name)
        return topic_of(self._broker, request)[0]

    def _topic(self, request: Request) -> Topic:
        """Return the topic, if it exists and has schemas. Raises RequestRefused."""
        name, _ = name_of(request)
        topic = self._broker.topics.find(name)
        if topic is None or not topic.meta.schemas:
            raise RequestRefused(SCHEMA_NOT_FOUND, "Schema not found")
        return topic


def _shown(topic: Topic, version: int | None) -> dict[str, Any]:
    meta = None if version is None else schema_of(topic.meta.schemas, version)
    if meta is None:
        raise RequestRefused(SCHEMA_NOT_FOUND, "Schema not found")
    return {
        "version": version,
        "type": types.name_of(meta.type),
        "timestamp": meta.created_us // 1000,
        "data": _definition_text(meta),
        "properties": meta.properties,
    }


def _definition_text(meta: SchemaMeta) -> str:
    """Return a definition as the admin API shows it: the definition of a KEY_VALUE is an object of
    its parts.
    """
    if types.name_of(meta.type) == types.KEY_VALUE:
        try:
            pair = _Pair(*(msgspec.Raw(part or b'""') for part in split_pair(meta.data)))
            return compact(msgspec.json.encode(pair)).decode()
        except (BadValue, msgspec.DecodeError, UnicodeDecodeError):
            pass  # Written by its producer in another form: shown as stored.
    return meta.data.decode(errors="backslashreplace")


def _pair_definition(text: str) -> bytes:
    """Return the stored definition of a KEY_VALUE, as producers send it. Raises BadValue."""
    try:
        pair = msgspec.json.decode(text, type=_Pair)
        check_names(text.encode())
    except (msgspec.DecodeError, RecursionError, RepeatedName) as error:
        reason = explain(error, _Pair)
        raise BadValue(f"a KEY_VALUE's schema is an object of key and value: {reason}") from None
    parts = (compact(bytes(part)) for part in (pair.key, pair.value))
    return join_pair(*(b"" if part == b'""' else part for part in parts))


def _read(body: object) -> SchemaMeta:
    """Return a schema from the admin API's form. Raises RequestRefused."""
    if not isinstance(body, dict) or not isinstance(body.get("type"), str):
        raise RequestRefused(UNREADABLE_SCHEMA, "a schema has a type, a schema and properties")
    definition, properties = body.get("schema", ""), body.get("properties") or {}
    is_map = isinstance(properties, dict) and all(
        isinstance(value, str) for value in properties.values()
    )
    if not isinstance(definition, str) or not is_map:
        raise RequestRefused(UNREADABLE_SCHEMA, "schema is a text, properties a map of texts")
    try:
        name = known_type(body["type"])
        if name in types.WITHOUT_SCHEMA:
            raise BadValue(f"{name} has no schema")
        data = _pair_definition(definition) if name == types.KEY_VALUE else definition.encode()
        if name in types.WITH_DEFINITION:
            value_codec(name, data)
    except BadValue as error:
        raise RequestRefused(UNREADABLE_SCHEMA, str(error)) from None
    return SchemaMeta(types.NUMBERS[name], "", data, properties)
