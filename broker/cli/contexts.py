"""Contexts: named brokers with their logins, in the user's contexts file.

    default = "local"
    [contexts.prod]
    url = "https://broker.example:8443"
    token_file = "prod.token"

Knows files and the environment, no broker.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from braidlog.broker.cli.failures import EXIT_NOT_FOUND, EXIT_USAGE, AdminError

DEFAULT_URL = "http://127.0.0.1:8080"
FILE_VARIABLE = "BRAIDLOG_CONTEXTS"
FIELDS = ("url", "token_file", "user", "password_file", "ca_file")
LOGIN = ("BRAIDLOG_TOKEN", "BRAIDLOG_USER", "BRAIDLOG_PASSWORD", "BRAIDLOG_CA_FILE")


def resolve(
    url: str | None,
    context: str | None,
    token_file: Path | None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[str, Mapping[str, str]]:
    """Return the URL of a broker, and the login as `AdminClient` reads it from the environment.

    An address that is given without a context never gets the login of a context. Raises AdminError.
    """
    login = {name: environment[name] for name in LOGIN if name in environment}
    url = url or (environment.get("BRAIDLOG_URL") if context is None else None)
    name = context or (environment.get("BRAIDLOG_CONTEXT") if url is None else None)
    if name is not None or url is None:
        entry = _context(name, environment)
        url = url or entry.get("url")
        login |= _login(entry)
    if token_file is not None:
        login["BRAIDLOG_TOKEN"] = first_line(token_file, "--token-file")
    return url or DEFAULT_URL, login


def contexts_file(environment: Mapping[str, str]) -> Path:
    """Return the place of the user's contexts file."""
    named_file = environment.get(FILE_VARIABLE)
    if named_file:
        return Path(named_file)
    base = environment.get("XDG_CONFIG_HOME") or os.path.join(
        environment.get("HOME", "~"), ".config"
    )
    return Path(base, "braidlog", "contexts.toml")


def first_line(path: Path, content: str) -> str:
    """Return the first line of a file with a secret. Raises AdminError."""
    try:
        return path.read_text("utf-8").partition("\n")[0].rstrip("\r")
    except OSError as error:
        raise AdminError(f"{content}: {path}: {error.strerror}", EXIT_USAGE) from error
    except UnicodeDecodeError as error:
        raise AdminError(f"{content}: {path}: not UTF-8", EXIT_USAGE) from error


def _context(name: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a context, or of the default context. Raises AdminError."""
    path = contexts_file(environment)
    try:
        content = path.read_bytes()
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        if name is None and is_missing:
            return {}
        code = EXIT_NOT_FOUND if is_missing else EXIT_USAGE
        prefix = "" if name is None else f"no context {name!r}: "
        raise AdminError(f"{prefix}{path}: {error.strerror}", code) from error
    import tomllib  # Most users have no such file.

    try:
        tree = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AdminError(f"{path}: not TOML: {error}", EXIT_USAGE) from error
    name = name or tree.get("default")
    if name is None:
        return {}
    contexts = tree.get("contexts")
    entry = contexts.get(name) if isinstance(contexts, dict) and isinstance(name, str) else None
    if not isinstance(entry, dict):
        known = ", ".join(sorted(contexts)) if isinstance(contexts, dict) and contexts else "none"
        raise AdminError(f"{path}: no context {name!r}, there are: {known}", EXIT_NOT_FOUND)
    return _checked(entry, name, path)


def _checked(entry: Mapping[str, Any], name: str, path: Path) -> dict[str, str]:
    for key, value in entry.items():
        if key not in FIELDS:
            known = ", ".join(FIELDS)
            raise AdminError(f"{path}: {name}: unknown field {key!r}, known: {known}", EXIT_USAGE)
        if not isinstance(value, str):
            raise AdminError(f"{path}: {name}.{key}: expected text", EXIT_USAGE)
    folder = path.parent  # Files are relative to the contexts file.
    return {
        key: str(folder / os.path.expanduser(value)) if key.endswith("_file") else value
        for key, value in entry.items()
    }


def _login(entry: Mapping[str, str]) -> dict[str, str]:
    """Return the login of a context, under the names of the environment. Raises AdminError."""
    login: dict[str, str] = {}
    if "token_file" in entry:
        login["BRAIDLOG_TOKEN"] = first_line(Path(entry["token_file"]), "token_file")
    elif "user" in entry:
        login |= {"BRAIDLOG_TOKEN": "", "BRAIDLOG_USER": entry["user"]}
    if "password_file" in entry:
        login["BRAIDLOG_PASSWORD"] = first_line(Path(entry["password_file"]), "password_file")
    if "ca_file" in entry:
        login["BRAIDLOG_CA_FILE"] = entry["ca_file"]
    return login
