"""The catalogue's contents, and the changes in its journal (storage/FORMAT.md, section 9.1).

Knows no journal. Structs are arrays on disk, in the order of their fields. A field may be added
only at the end, with a default and a new layout version: an older program must not read past
unknown fields.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec

from braidlog.storage.metadata.names import TopicName
from braidlog.storage.metadata.user_records import UserChange

# First Iggy id of objects created through other listeners; Iggy's clients choose small ids.
MADE_ID_FIRST: Final = 1 << 24
GROUP_ID_FIRST: Final = 1

Setting = str | int | bool
ClusterField = str | bool | list[str]
ClusterFields = Mapping[str, ClusterField]
TERMINATED: Final = "terminated"  # The setting of a topic that takes no more records, for ever.
# The setting of a topic that takes no records while a broker of a cluster deletes the topic, which
# no client used.
DELETING: Final = "deleting"


DELETED_SCHEMA_TYPE: Final = -100  # A number that no protocol uses.


class SchemaMeta(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A version of a topic's schema: Pulsar's type number, its definition and properties. A version
    may record that the topic's schema was deleted; versions before it still decode records.

    `created_us` is 0 for a version that an earlier program stored without its time.
    """

    LAYOUT: ClassVar[int] = 7  # Of a record with a schema: earlier programs know no `created_us`.

    type: int
    name: str
    data: bytes
    properties: dict[str, str]
    created_us: int = 0

    @property
    def is_deletion(self) -> bool:
        """True if this version says that the topic has no schema from here on."""
        return self.type == DELETED_SCHEMA_TYPE


class GroupMeta(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A named Iggy consumer group; its members are not stored."""

    group_id: int
    name: str


class NamespaceMeta(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A namespace (Iggy: stream). `iggy_id` is the id that an Iggy client chose; if `iggy_id` is
    None, Iggy clients use `made_id`.
    """

    tenant: str
    namespace: str
    created_us: int
    iggy_id: int | None
    made_id: int
    settings: dict[str, Setting] = {}  # Defaults for topics of the namespace.


class TopicMeta(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A topic. `partition_ids` by partition number; `iggy_id` and `made_id` as in a namespace."""

    topic_id: int
    name: TopicName
    partition_ids: list[int]
    partitioned: bool
    created_us: int
    settings: dict[str, Setting]
    iggy_id: int | None
    made_id: int
    topic_epoch: int = 0
    schemas: list[SchemaMeta] = []
    groups: list[GroupMeta] = []
    next_group_id: int = GROUP_ID_FIRST

    @property
    def is_terminated(self) -> bool:
        """True if the topic takes no more records."""
        return bool(self.settings.get(TERMINATED))

    @property
    def is_being_deleted(self) -> bool:
        """True if the topic takes no records because its deletion is under way."""
        return bool(self.settings.get(DELETING))

    def take_data(self, source: "TopicMeta") -> None:
        """Take the data that the topic's owner changes: epoch, schemas and named groups."""
        self.topic_epoch, self.next_group_id = source.topic_epoch, source.next_group_id
        self.schemas, self.groups = [*source.schemas], [*source.groups]

    def without_data(self) -> "TopicMeta":
        """Return a copy without the data that the topic's owner changes."""
        return msgspec.structs.replace(
            self, topic_epoch=0, schemas=[], groups=[], next_group_id=GROUP_ID_FIRST
        )


class NamespaceMade(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=1):
    """A namespace was created."""

    meta: NamespaceMeta


class NamespaceGone(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=2):
    """A namespace, empty of topics, was deleted."""

    tenant: str
    namespace: str


class TopicMade(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=3):
    """A topic was created, with all its fields."""

    meta: TopicMeta

    @property
    def LAYOUT(self) -> int:
        """Layout version of a record with this change."""
        return max((schema.LAYOUT for schema in self.meta.schemas), default=0)


class TopicGone(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=4):
    """A topic was deleted; its number and those of its partitions are never used again."""

    topic_id: int


class PartitionsSet(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=5):
    """A topic has these partitions now."""

    topic_id: int
    partition_ids: list[int]
    partitioned: bool


class SettingsSet(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=6):
    """A topic has these settings now, and no others."""

    topic_id: int
    settings: dict[str, Setting]


class SchemaAdded(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=7):
    """A schema version was added to a topic."""

    LAYOUT: ClassVar[int] = SchemaMeta.LAYOUT

    topic_id: int
    schema: SchemaMeta


class EpochSet(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=8):
    """A topic's epoch (Pulsar's exclusive producers)."""

    topic_id: int
    topic_epoch: int


class GroupMade(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=9):
    """A named Iggy group was added to a topic."""

    topic_id: int
    group: GroupMeta


class GroupGone(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=10):
    """A named Iggy group was deleted."""

    topic_id: int
    group_id: int


class ProducerNamed(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=11):
    """The number that stands for a producer's name in batch headers."""

    number: int
    name: bytes


class CountersSet(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=12):
    """The next numbers to give out: first in a snapshot, which does not show deleted objects."""

    next_topic_id: int
    next_partition_id: int
    next_made_id: int
    next_producer: int = 1


class ProducersForgotten(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=13):
    """These producers are forgotten; their numbers are never used again."""

    numbers: list[int]


class NamespaceSettingsSet(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=14):
    """A namespace has these settings now, and no others."""

    tenant: str
    namespace: str
    settings: dict[str, Setting]


class TopicRenamed(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=15):
    """A topic has another name within its namespace; all other fields stay."""

    LAYOUT: ClassVar[int] = 3  # Of a record with this change.

    topic_id: int
    topic: str


class NamespaceRenamed(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=16):
    """A namespace has another name within its tenant, and so have all its topics."""

    LAYOUT: ClassVar[int] = 3

    tenant: str
    namespace: str
    renamed: str


class TenantSet(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=17):
    """A tenant exists, with or without a namespace, and these are its admin roles and the clusters
    that it may use now; an empty list stands for the own cluster alone.
    """

    LAYOUT: ClassVar[int] = 8  # Earlier programs know no `allowed_clusters`.

    tenant: str
    admin_roles: list[str]
    allowed_clusters: list[str] = []


class TenantGone(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=18):
    """A tenant is forgotten: the tenant no longer exists, unless it has a namespace."""

    LAYOUT: ClassVar[int] = 3

    tenant: str


class ClusterDescribed(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=25):
    """A cluster of that name is known, and these fields, and no others, describe the cluster."""

    LAYOUT: ClassVar[int] = 8

    cluster: str
    fields: dict[str, ClusterField]


class ClusterForgotten(msgspec.Struct, array_like=True, forbid_unknown_fields=True, tag=26):
    """The description of a cluster is deleted."""

    LAYOUT: ClassVar[int] = 8

    cluster: str


TenantChange = TenantSet | TenantGone | ClusterDescribed | ClusterForgotten
CatalogueChange = (
    NamespaceMade
    | NamespaceGone
    | TopicMade
    | TopicGone
    | PartitionsSet
    | SettingsSet
    | SchemaAdded
    | EpochSet
    | GroupMade
    | GroupGone
    | ProducerNamed
    | CountersSet
    | ProducersForgotten
    | NamespaceSettingsSet
    | TopicRenamed
    | NamespaceRenamed
    | TenantChange
    | UserChange
)
