"""Properties of topics and namespaces: texts by name that tools keep there.

Each is a setting of its own in the catalogue, under a prefix that no other setting has. Knows no
route.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from braidlog.protocols.http.errors import BAD_BODY, BAD_LIMIT, NOT_SUPPORTED, RequestRefused

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.http.pulsar_admin.policies import Setting

# Different prefixes: a topic does not inherit the properties of its namespace.
OF_TOPIC: Final = "topic_property:"
OF_NAMESPACE: Final = "namespace_property:"
TOPIC_CLUSTERS: Final = "topic_clusters"  # A topic's list of clusters, a policy that it inherits.
# Names and values together; a change of any setting writes all settings.
PROPERTIES_BYTES_MAX: Final = 4096
SHADOW_SOURCE: Final = "PULSAR.SHADOW_SOURCE"  # Makes Apache's topic a copy of another topic.


def properties_of(settings: Mapping[str, Setting], prefix: str) -> dict[str, str]:
    """Return the properties among settings."""
    return {
        name.removeprefix(prefix): str(value)
        for name, value in settings.items()
        if name.startswith(prefix)
    }


def shown_properties(topic: Topic) -> dict[str, object]:
    """Return the field with a topic's properties; no field without properties, as Apache."""
    properties = properties_of(topic.meta.settings, OF_TOPIC)
    return {"properties": properties} if properties else {}


def read_properties(body: object) -> dict[str, str]:
    """Return the properties in a body. Raises RequestRefused, also if there are too many."""
    properties = {} if body is None else body
    is_map = isinstance(properties, dict) and all(
        isinstance(value, str) for value in properties.values()
    )
    if not is_map:
        raise RequestRefused(BAD_BODY, "expected an object whose values are texts")
    assert isinstance(properties, dict)
    _check_size(properties)
    return properties


def _check_size(properties: Mapping[str, str | None]) -> None:
    size = sum(len(name) + len(value) for name, value in properties.items() if value is not None)
    if size > PROPERTIES_BYTES_MAX:
        text = f"the properties have at most {PROPERTIES_BYTES_MAX} characters together"
        raise RequestRefused(BAD_LIMIT, text)


def changes_to(
    settings: Mapping[str, Setting], prefix: str, properties: Mapping[str, str | None]
) -> dict[str, Setting | None]:
    """Return the changes of settings that set properties; None removes a property.

    Raises RequestRefused if there would be too many.
    """
    if properties.get(SHADOW_SOURCE) is not None:
        raise RequestRefused(NOT_SUPPORTED, f"{SHADOW_SOURCE}: shadow topics are not served here")
    left = {**properties_of(settings, prefix), **properties}
    _check_size(left)
    return {prefix + name: value for name, value in properties.items()}
