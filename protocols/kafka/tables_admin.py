"""The tables of topic administration. Layouts: as in `tables.py`."""

from protocols.kafka import admin_messages as m
from protocols.kafka.fields import (
    BOOL,
    I8,
    I16,
    I32,
    NOTHING,
    TEXT,
    Api,
    Array,
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

ADMIN_APIS = {
    19: CREATE_TOPICS,
    20: DELETE_TOPICS,
    32: DESCRIBE_CONFIGS,
    37: CREATE_PARTITIONS,
}
