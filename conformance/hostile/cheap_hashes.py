"""`braidlog` with password hashes of almost no cost, for runs of very many handshakes.

A mutated handshake tests the code before the hashing of a password; at 20 ms per hash a million
handshakes would take days. `wrong_passwords` measures the broker's cost of hashing, with the
default hashes.
"""

from braidlog.broker.access import passwords
from braidlog.broker.cli.main import main

MEMORY_KIB, PASSES = 8, 1  # The minimum of argon2.

if __name__ == "__main__":
    vars(passwords).update(HASH_MEMORY_KIB=MEMORY_KIB, HASH_PASSES=PASSES)
    main()
