"""`python -m conformance.programs [NAME...]`: build the programs of other languages, all or the
named programs, and run each once.
"""

import sys

from conformance.programs import (
    pulsar_admin_program,
    pulsar_go_program,
    pulsar_java_program,
    pulsar_js_program,
    pulsar_rust_program,
)
from conformance.programs.running import NotBuilt
from conformance.server import RunningBroker

PROGRAMS = {
    "java": pulsar_java_program,
    "go": pulsar_go_program,
    "js": pulsar_js_program,
    "rust": pulsar_rust_program,
    "admin": pulsar_admin_program,
}


def main() -> int:
    """Return 1 if a program could not be built, or a step failed."""
    failed = False
    for name in sys.argv[1:] or PROGRAMS:
        try:
            PROGRAMS[name].build()
            with RunningBroker() as broker:
                lines = PROGRAMS[name].run(broker.addresses["pulsar"], broker.url)
        except NotBuilt as error:
            print(f"{name}: {error}")
            failed = True
            continue
        print("\n".join(f"{name}: {line}" for line in lines))
        failed = failed or any(not line.startswith("ok ") for line in lines)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
