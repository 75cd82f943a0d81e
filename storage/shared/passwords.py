"""Passwords in connection strings of PostgreSQL, which no plan, log or page may show."""

import re
from typing import Final

# A password in a connection string or URL of libpq. The name of a password file is allowed.
PASSWORD: Final = re.compile(r"password\s*=|://[^/@]*:[^/@]*@", re.IGNORECASE)
