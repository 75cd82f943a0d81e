"""`braidlog` with password hashes that cost next to nothing, for runs of very many handshakes.

A mutated handshake is about what is read before a password is hashed; at 20 ms for each hash a
million of them would take days. What hashing costs a broker, `wrong_passwords` looks at, with the
hashes that everybody gets.
"""

from braidlog.broker.access import passwords
from braidlog.broker.cli.main import main

MEMORY_KIB, PASSES = 8, 1  # The least that argon2 takes.

if __name__ == "__main__":
    vars(passwords).update(HASH_MEMORY_KIB=MEMORY_KIB, HASH_PASSES=PASSES)
    main()
