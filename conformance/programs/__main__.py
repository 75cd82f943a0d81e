"""`python -m conformance.programs`: build the programs of other languages and run each once."""

import sys

from conformance.programs import pulsar_java_program
from conformance.programs.pulsar_java_program import NotBuilt
from conformance.server import RunningBroker


def main() -> int:
    """Exit code 1 if a program could not be built, or a step failed."""
    try:
        pulsar_java_program.build()
    except NotBuilt as error:
        print(error)
        return 1
    with RunningBroker() as broker:
        lines = pulsar_java_program.run(broker.addresses["pulsar"], broker.url)
    print("\n".join(lines))
    return int(any(not line.startswith("ok ") for line in lines))


if __name__ == "__main__":
    sys.exit(main())
