"""Apache's statistics of features that Braidlog does not have or does not count,
with the value that Apache gives where nothing happened.

Tools read these fields and may fail without them. Knows no topic.
"""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

# Key_Shared consumers that still have messages of keys that moved to another consumer.
_DRAINING: Final = (
    "drainingHashesCount",
    "drainingHashesClearedTotal",
    "drainingHashesUnackedMessages",
)
CONSUMER: Final[Json] = dict.fromkeys(_DRAINING, 0) | {"chunkedMessageRate": 0.0}

_THROTTLED: Final = [
    f"dispatchThrottled{unit}EventsBy{level}Limit"
    for level in ("Subscription", "Topic", "Broker")
    for unit in ("Msg", "Bytes")
]
_FILTERED: Final = [
    f"filter{result}MsgCount" for result in ("Processed", "Accepted", "Rejected", "Rescheduled")
]
SUBSCRIPTION: Final[Json] = dict.fromkeys((*_DRAINING, *_FILTERED, *_THROTTLED), 0) | {
    "chunkedMessageRate": 0.0,
    "consumersAfterMarkDeletePosition": {},
    "delayedMessageIndexSizeInBytes": 0,
    "lastExpireTimestamp": 0,
    "lastMarkDeleteAdvancedTimestamp": 0,
    "msgInReplay": 0,
    "nonContiguousDeletedMessagesRanges": 0,
    "nonContiguousDeletedMessagesRangesSerializedSize": 0,
}

_TRANSACTIONS: Final = ("ongoingTxnCount", "abortedTxnCount", "committedTxnCount")
_OFFLOAD: Final = (
    "offloadedStorageSize",
    "lastOffloadLedgerId",
    "lastOffloadSuccessTimeStamp",
    "lastOffloadFailureTimeStamp",
)
TOPIC: Final[Json] = dict.fromkeys((*_TRANSACTIONS, *_OFFLOAD), 0) | {
    "averageMsgSize": 0.0,
    "backlogQuotaLimitSize": -1,
    "backlogQuotaLimitTime": -1,
    "bytesOutInternalCounter": 0,
    "compaction": dict.fromkeys(
        (
            "lastCompactionRemovedEventCount",
            "lastCompactionSucceedTimestamp",
            "lastCompactionFailedTimestamp",
            "lastCompactionDurationTimeInMills",
        ),
        0,
    ),
    "delayedMessageIndexSizeInBytes": 0,
    "earliestMsgPublishTimeInBacklogs": 0,
    "lastPublishTimeStamp": 0,
    "msgChunkPublished": False,
    "nonContiguousDeletedMessagesRanges": 0,
    "nonContiguousDeletedMessagesRangesSerializedSize": 0,
    "oldestBacklogMessageAgeSeconds": -1,
    "publishRateLimitedTimes": 0,
    "replication": {},
    "systemTopicBytesInCounter": 0,
    "topicCreationTimeStamp": 0,
}

INTERNAL_CURSOR: Final[Json] = {
    "waitingReadOp": False,
    "pendingReadOps": 0,
    "messagesConsumedCounter": 0,
    "cursorLedger": -1,
    "cursorLedgerLastEntry": -1,
    "active": False,
    "numberOfEntriesSinceFirstNotAckedMessage": 0,
    "totalNonContiguousDeletedMessagesRange": 0,
    "subscriptionHavePendingRead": False,
    "subscriptionHavePendingReplayRead": False,
}
INTERNAL: Final[Json] = dict.fromkeys(
    (
        "numberOfEntries",
        "totalSize",
        "currentLedgerEntries",
        "currentLedgerSize",
        "waitingCursorsCount",
        "pendingAddEntriesCount",
    ),
    0,
)
NO_LEDGER: Final[Json] = {
    "ledgerId": -1,
    "entries": -1,
    "size": -1,
    "offloaded": False,
    "underReplicated": False,
}
