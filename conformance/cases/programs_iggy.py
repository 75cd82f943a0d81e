"""Programs in Rust and Java with Iggy's own clients, from the oldest dialect to the newest."""

import struct
import subprocess

from conformance.clients import iggy_programs
from conformance.clients.iggy import NoClient
from conformance.clients.raw.iggy import (
    CREATE_STREAM,
    CREATE_TOPIC,
    NEVER,
    IggyWire,
    identifier,
    text8,
)
from conformance.runner import Context, Skip

NAMES = {f"iggy {language}": language for language in iggy_programs.ALL}
CLIENTS = list(NAMES)
STREAM, STREAM_ID, TOPIC, PARTITIONS = "shared", 500, "all", 2  # Shared by the programs.
PROGRAM_S = 300


def run(context: Context) -> None:
    host, port = context.address("iggy")
    try:
        command = iggy_programs.built_command(NAMES[context.client_names[0]])
    except NoClient as reason:
        raise Skip(str(reason)) from None
    with IggyWire((host, port)) as wire:  # Refused if an earlier cell created them.
        wire.ask(CREATE_STREAM, struct.pack("<I", STREAM_ID) + text8(STREAM))
        tail = struct.pack("<IIBQQB", 1, PARTITIONS, 1, NEVER, 0, 0) + text8(TOPIC)
        wire.ask(CREATE_TOPIC, identifier(STREAM) + tail)
    done = subprocess.run(
        [*command, "work", f"{host}:{port}"], capture_output=True, text=True, timeout=PROGRAM_S
    )
    *bad, counted = done.stdout.splitlines() or [done.stderr[-500:]]
    assert not bad and counted.endswith(" ok, 0 bad"), [*bad, counted]
