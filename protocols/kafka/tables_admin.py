"""The tables of topic administration. Layouts: as in `tables.py`."""

from braidlog.protocols.kafka import admin_messages as m
from braidlog.protocols.kafka.fields import (
    BOOL,
    I8,
    I16,
    I32,
    I64,
    NOTHING,
    TEXT,
    Api,
    Array,
    ByPartition,
    Field,
    ignored,
    table,
)

CONFIG = table(m.TopicConfig, Field("name", TEXT), Field("value", TEXT))
ASSIGNMENT = table(dict, ignored(I32), ignored(Array(I32), value=()))

CREATE_TOPICS = Api(
    4,
    table(
        m.CreateTopicsRequest,
        Field(
            "topics",
            Array(
                table(
                    m.NewTopic,
                    Field("name", TEXT),
                    Field("partitions", I32),
                    Field("replication", I16),
                    Field("assignments", Array(ASSIGNMENT)),
                    Field("configs", Array(CONFIG)),
                )
            ),
        ),
        ignored(I32),  # Timeout.
        Field("validate_only", BOOL, since=1),
    ),
    table(
        m.CreateTopicsReply,
        ignored(I32, since=2),  # Throttle time.
        Field(
            "topics",
            Array(
                table(
                    m.TopicDone,
                    Field("name", TEXT),
                    Field("error", I16),
                    Field("message", TEXT, since=1),
                )
            ),
        ),
    ),
)

DELETE_TOPICS = Api(
    3,
    table(m.DeleteTopicsRequest, Field("topics", Array(TEXT)), ignored(I32)),
    table(
        m.DeleteTopicsReply,
        ignored(I32, since=1),  # Throttle time.
        Field("topics", Array(table(m.TopicDone, Field("name", TEXT), Field("error", I16)))),
    ),
)

CREATE_PARTITIONS = Api(
    1,
    table(
        m.CreatePartitionsRequest,
        Field(
            "topics",
            Array(
                table(
                    m.GrowingTopic,
                    Field("name", TEXT),
                    Field("count", I32),
                    ignored(Array(Array(I32), nullable=True), value=None),  # Assignments.
                )
            ),
        ),
        ignored(I32),  # Timeout.
        Field("validate_only", BOOL),
    ),
    table(
        m.CreatePartitionsReply,
        ignored(I32),  # Throttle time.
        Field(
            "topics",
            Array(
                table(
                    m.TopicDone,
                    Field("name", TEXT),
                    Field("error", I16),
                    Field("message", TEXT),
                )
            ),
        ),
    ),
)

DESCRIBE_CONFIGS = Api(
    3,
    table(
        m.DescribeConfigsRequest,
        Field(
            "resources",
            Array(
                table(
                    m.ConfigResource,
                    Field("kind", I8),
                    Field("name", TEXT),
                    Field("keys", Array(TEXT, nullable=True)),
                )
            ),
        ),
        ignored(BOOL, since=1),  # Synonyms.
        ignored(BOOL, since=3),  # Documentation.
    ),
    table(
        m.DescribeConfigsReply,
        ignored(I32),  # Throttle time.
        Field(
            "resources",
            Array(
                table(
                    m.DescribedConfigs,
                    Field("error", I16),
                    Field("message", TEXT),
                    Field("kind", I8),
                    Field("name", TEXT),
                    Field(
                        "entries",
                        Array(
                            table(
                                m.ConfigEntry,
                                Field("name", TEXT),
                                Field("value", TEXT),
                                ignored(BOOL, value=False),  # Read-only.
                                Field("is_default", BOOL, until=0),
                                Field("source", I8, since=1),
                                ignored(BOOL, value=False),  # Sensitive.
                                ignored(Array(NOTHING), since=1, value=()),  # Synonyms.
                                ignored(I8, since=3),  # Type: unknown.
                                ignored(TEXT, since=3, value=None),  # Documentation.
                            )
                        ),
                    ),
                )
            ),
        ),
    ),
)

RESOURCE_DONE = table(
    m.ResourceDone,
    Field("error", I16),
    Field("message", TEXT),
    Field("kind", I8),
    Field("name", TEXT),
)


def _altered(*change: Field) -> Field:
    """The resources of a request that changes settings."""
    changes = Array(table(m.ConfigChange, *change))
    return Field(
        "resources",
        Array(
            table(
                m.AlteredResource,
                Field("kind", I8),
                Field("name", TEXT),
                Field("changes", changes),
            )
        ),
    )


ALTER_CONFIGS = Api(
    1,
    table(
        m.AlterConfigsRequest,
        _altered(Field("name", TEXT), Field("value", TEXT)),
        Field("validate_only", BOOL),
    ),
    table(
        m.AlterConfigsReply,
        ignored(I32),  # Throttle time.
        Field("resources", Array(RESOURCE_DONE)),
    ),
)

INCREMENTAL_ALTER_CONFIGS = Api(
    0,
    table(
        m.IncrementalAlterConfigsRequest,
        _altered(Field("name", TEXT), Field("operation", I8), Field("value", TEXT)),
        Field("validate_only", BOOL),
    ),
    table(
        m.IncrementalAlterConfigsReply,
        ignored(I32),  # Throttle time.
        Field("resources", Array(RESOURCE_DONE)),
    ),
)

DELETE_RECORDS = Api(
    1,
    table(m.DeleteRecordsRequest, Field("topics", ByPartition(I64)), ignored(I32)),
    table(
        m.DeleteRecordsReply,
        ignored(I32),  # Throttle time.
        Field(
            "topics",
            ByPartition(
                table(m.DeletedRecords, Field("log_start_offset", I64), Field("error", I16))
            ),
        ),
    ),
)

LOG_SIZE = table(
    m.LogSize,
    Field("size_bytes", I64),
    ignored(I64),  # How far a replica lags behind.
    ignored(BOOL, value=False),  # Whether it is on its way to another directory.
)

DESCRIBE_LOG_DIRS = Api(
    1,
    table(
        m.DescribeLogDirsRequest,
        Field(
            "topics",
            Array(
                table(m.LogDirsTopic, Field("name", TEXT), Field("partitions", Array(I32))),
                nullable=True,
            ),
        ),
    ),
    table(
        m.DescribeLogDirsReply,
        ignored(I32),  # Throttle time.
        Field(
            "log_dirs",
            Array(
                table(
                    m.LogDir,
                    Field("error", I16),
                    Field("path", TEXT),
                    Field("topics", ByPartition(LOG_SIZE)),
                )
            ),
        ),
    ),
)

ADMIN_APIS = {
    19: CREATE_TOPICS,
    20: DELETE_TOPICS,
    21: DELETE_RECORDS,
    32: DESCRIBE_CONFIGS,
    33: ALTER_CONFIGS,
    35: DESCRIBE_LOG_DIRS,
    37: CREATE_PARTITIONS,
    44: INCREMENTAL_ALTER_CONFIGS,
}
