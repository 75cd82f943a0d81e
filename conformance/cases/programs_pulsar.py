"""Programs in Java, Go, JavaScript and Rust with Pulsar's clients, Java's admin client and the
command-line tools: every kind of subscription, delayed messages, retry and dead letters, chunks,
schemas, admin calls.
"""

from conformance.programs.__main__ import PROGRAMS
from conformance.programs.running import NotBuilt
from conformance.runner import Context, Skip

NAMES = {
    "pulsar java 4.2.4": "java",
    "pulsar-client-go 0.19.0": "go",
    "pulsar-flex 1.1.1": "js",
    "pulsar-rs 6.9.1": "rust",
    "pulsar-admin 4.0.8": "admin",
}
CLIENTS = [label for label, program in NAMES.items() if program in PROGRAMS]


def run(context: Context) -> None:
    pulsar, http = (
        ":".join(map(str, context.address(listener))) for listener in ("pulsar", "http")
    )
    (label,) = context.client_names
    program = PROGRAMS[NAMES[label]]
    try:
        program.build()  # Quick if nothing has changed.
        lines = program.run(pulsar, f"http://{http}")
    except NotBuilt as reason:
        raise Skip(str(reason)) from None
    assert lines and all(line.startswith("ok ") for line in lines), lines
