"""`python -m conformance.golden --kafka HOST:PORT --record FILE` writes a broker's answers."""

import argparse
from pathlib import Path

from conformance.golden.talk import GoldenRow, answers, prepared


def main() -> None:
    """Record the answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", required=True, help="a fresh broker, with node id 1")
    parser.add_argument("--record", type=Path, required=True, help="the table to write")
    options = parser.parse_args()
    host, _, port = options.kafka.rpartition(":")
    address = host, int(port)
    ids, versions = prepared(address)
    rows = list(answers(address, ids, versions))
    lines = ["# api key\tversion\tcase\tbody of the answer in hexadecimal, or closed"]
    lines += [
        GoldenRow(-1, 0, name.decode(), topic_id.hex()).line for name, topic_id in ids.items()
    ]
    lines += [
        GoldenRow(-2, newest, str(key), str(oldest)).line
        for key, (oldest, newest) in versions.items()
    ]
    lines += [row.line for row in rows]
    options.record.write_text("\n".join(lines) + "\n")
    print(f"{len(rows)} answers of {options.kafka}")


if __name__ == "__main__":
    main()
