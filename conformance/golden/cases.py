"""The requests, in order: a good one and bad ones of each key. Later cases build on earlier.

`TOPIC` has two partitions and three records with fixed times in the first; `GROUP` has a position.
Requests that name a topic by its id get the id from `ids`. Requests that admin tools send by
mistake come late: names twice, extreme numbers, names that are no text. None of them changes what
the other cases see.
"""

from typing import Final

from conformance.golden.case import TOPIC, Case
from conformance.golden.cluster_cases import CLUSTER_CASES, REFUSED_CLUSTER_CASES
from conformance.golden.group_cases import GROUP_CASES, REFUSED_GROUP_CASES
from conformance.golden.member_cases import MEMBER_CASES, SHARED_INDEX
from conformance.golden.record_cases import (
    PRODUCE_SINCE,
    RECORD_CASES,
    REFUSED_RECORD_CASES,
    produced,
)
from conformance.golden.setting_cases import REFUSED_SETTING_CASES, SETTING_CASES
from conformance.golden.topic_cases import REFUSED_TOPIC_CASES, TOPIC_CASES
from conformance.golden.unusual_cases import UNUSUAL_CASES

CASES: Final = (
    *TOPIC_CASES,
    *RECORD_CASES,
    *GROUP_CASES,
    *SETTING_CASES,
    *CLUSTER_CASES,
    *REFUSED_TOPIC_CASES,
    *REFUSED_SETTING_CASES,
    *REFUSED_RECORD_CASES,
    *REFUSED_GROUP_CASES,
    *REFUSED_CLUSTER_CASES,
    *UNUSUAL_CASES,
    Case("produce for a share group", produced(TOPIC, SHARED_INDEX), PRODUCE_SINCE),
    *MEMBER_CASES,
)
