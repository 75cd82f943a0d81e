"""`python -m conformance.golden.logins --kafka HOST:PORT --record FILE`: the answers of a broker
that demands logins, to the dialogues of `login_cases.py` and `acl_cases.py`.

The broker is fresh, has the users ADMIN (a superuser) and CARL for PLAIN, and an authorizer:

    listeners=LOGIN://...  listener.security.protocol.map=LOGIN:SASL_PLAINTEXT,...
    sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
    authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
    super.users=User:admin  connection.failed.authentication.delay.ms=0
"""

import argparse
import socket
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from braidlog.protocols.kafka.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
)
from braidlog.protocols.kafka.wire.create_acls import CreateAclsRequest
from braidlog.protocols.kafka.wire.delete_acls import DeleteAclsRequest
from conformance.golden.acl_cases import acl_dialogues
from conformance.golden.asking import CLOSED, SIZE, WAIT_S, ask_on, decoded
from conformance.golden.login_cases import LoginDialogue, LoginStep, login_dialogues
from conformance.golden.talk import Address, GoldenRow

# Kafka answers such a change before its brokers know the change.
CHANGES: Final = (AlterUserScramCredentialsRequest, CreateAclsRequest, DeleteAclsRequest)
SETTLE_S: Final = 0.3


def dialogues() -> Iterator[LoginDialogue]:
    """Yield every dialogue, in order."""
    return chain(login_dialogues(), acl_dialogues())


def row_of(step: LoginStep, answer: str) -> GoldenRow | None:
    """Return the row of an answer; None for a step that is not recorded."""
    if isinstance(step.body, bytes) or not step.note:
        return None
    return GoldenRow(step.body.KEY, step.version, step.note, answer)


def next_step(dialogue: LoginDialogue, row: GoldenRow | None) -> LoginStep | None:
    """Return the step after an answer; None at the end of the dialogue."""
    answer = None
    if row is not None and row.answer != CLOSED:
        answer = decoded(row.key, row.version, row.answer)
    try:
        return dialogue.send(answer)
    except StopIteration:
        return None


def _answers(address: Address, dialogue: LoginDialogue) -> Iterator[GoldenRow]:
    with socket.create_connection(address, WAIT_S) as connection:
        step: LoginStep | None = next(dialogue)
        while step is not None:
            row = row_of(step, _ask(connection, step))
            if row is not None:
                yield row
            if isinstance(step.body, CHANGES):
                time.sleep(SETTLE_S)
            step = next_step(dialogue, row)


def _ask(connection: socket.socket, step: LoginStep) -> str:
    try:
        if not isinstance(step.body, bytes):
            return ask_on(connection, step.version, step.body)
        connection.sendall(SIZE.pack(len(step.body)) + step.body)
        prefix = connection.recv(SIZE.size, socket.MSG_WAITALL)
        return "" if not prefix else connection.recv(*SIZE.unpack(prefix)).hex()
    except (BrokenPipeError, ConnectionResetError):
        return CLOSED


def main() -> None:
    """Record the answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", required=True, help="a fresh broker that demands logins")
    parser.add_argument("--record", type=Path, required=True, help="the table to write")
    options = parser.parse_args()
    host, _, port = options.kafka.rpartition(":")
    rows = [row for dialogue in dialogues() for row in _answers((host, int(port)), dialogue)]
    lines = ["# api key\tversion\tcase\tbody of the answer in hexadecimal, or closed"]
    options.record.write_text("\n".join([*lines, *(row.line for row in rows)]) + "\n")
    print(f"{len(rows)} answers of {options.kafka}")


if __name__ == "__main__":
    main()
