"""InitProducerId: a number for a producer that sends sequences. Transactions are not served."""

from __future__ import annotations

import secrets

from protocols.kafka.context import Answer, Context
from protocols.kafka.errors import Code
from protocols.kafka.messages import InitProducerIdReply, InitProducerIdRequest

# Ids are drawn, so that no two brokers and no two starts give the same one; the upper half of the
# range keeps them apart from the catalogue's own numbers.
ID_MIN = 1 << 62


def init_producer_id(context: Context, request: InitProducerIdRequest) -> Answer:
    """Give an id of its own to a producer without transactions, and refuse the others for good."""
    if request.transactional_id is not None:
        code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return Answer(InitProducerIdReply(code, -1, -1))
    return Answer(InitProducerIdReply(Code.NONE, ID_MIN + secrets.randbelow(ID_MIN), 0))
