"""`braidlog users`, `braidlog tokens`, `braidlog permissions`: logins and permissions.

Secrets are never arguments, which every user of a machine can read: passwords come from a file or
the terminal, and a token's text is printed once. Knows no broker but its JSON API.
"""

from __future__ import annotations

import getpass
import sys
import time
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlencode

from cyclopts import App, Parameter

from braidlog.broker.cli.client import API, AdminClient, Json, path_part
from braidlog.broker.cli.confirming import Yes, confirm
from braidlog.broker.cli.contexts import first_line
from braidlog.broker.cli.failures import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_USAGE, AdminError
from braidlog.broker.cli.output import HERE, Where, client_of, print_answer, print_rows, time_text
from braidlog.broker.config.units import parse_seconds

users = App(name="users", help="List, make, change and remove users.")
tokens = App(name="tokens", help="Make, list and take back access tokens.")
permissions = App(name="permissions", help="Grant, take back, list and test permissions.")

PasswordFile = Annotated[
    Path | None,
    Parameter(help="Its first line is the password; without it the password is asked for."),
]
PERMISSIONS: Final = f"{API}/permissions"
Roles = Annotated[list[str] | None, Parameter(name="--role", negative="", help="Repeatable.")]


@users.command(name="list")
def list_users(*, where: Where = HERE) -> None:
    """List all users.

    Example: braidlog users list
    """
    user_list = client_of(where).ask("GET", f"{API}/users")["users"]
    columns = ("name", "id", "active", "has_password", "roles", "tokens")
    rows = [
        {**user, "roles": ", ".join(user["roles"]), "tokens": len(user["tokens"])}
        for user in user_list
    ]
    print_rows(where, user_list, columns, rows)


@users.command(name="create")
def create_user(
    user: str,
    *,
    password_file: PasswordFile = None,
    no_password: Annotated[
        bool, Parameter(negative="", help="They come in by tokens or certificates.")
    ] = False,
    role: Roles = None,
    where: Where = HERE,
) -> None:
    """Create a user.

    Example: braidlog users create anna --password-file anna.txt
    """
    client = client_of(where)
    body: Json = {"roles": role or []}
    if not no_password:
        body["password"] = _password(password_file)
    client.ask("PUT", _path(user), body)


@users.command(name="password")
def set_password(user: str, *, password_file: PasswordFile = None, where: Where = HERE) -> None:
    """Set a new password for a user.

    Example: braidlog users password anna
    """
    client = client_of(where)
    client.ask("PATCH", _path(user), {"password": _password(password_file)})


@users.command(name="alter")
def alter_user(
    user: str,
    *,
    active: Annotated[bool | None, Parameter(help="Whether they may come in.")] = None,
    role: Roles = None,
    where: Where = HERE,
) -> None:
    """Replace a user's roles, lock a user out or allow logins again.

    Example: braidlog users alter anna --no-active
    """
    client_of(where).ask("PATCH", _path(user), {"active": active, "roles": role})


@users.command(name="delete")
def delete_user(user: str, *, yes: Yes = False, where: Where = HERE) -> None:
    """Remove a user with all tokens and permissions. Connections with the user's password or tokens
    end.

    Example: braidlog users delete anna --yes
    """
    client = client_of(where)
    confirm(f"Delete the user {user} with all tokens and permissions?", yes=yes)
    client.ask("DELETE", _path(user))


@tokens.command(name="create")
def create_token(
    user: str,
    name: str,
    *,
    expires: Annotated[str | None, Parameter(help="As 90d; without it: never.")] = None,
    where: Where = HERE,
) -> None:
    """Create an access token and print the token. The token cannot be shown again.

    Example: braidlog tokens create anna laptop --expires 90d
    """
    client = client_of(where)
    body: Json = {}
    if expires is not None:
        body["expires_us"] = time.time_ns() // 1000 + int(_seconds(expires) * 1_000_000)
    created = client.ask("PUT", f"{_path(user)}/tokens/{path_part(name)}", body)
    if where.output == "table":
        print(created["token"])
    else:
        print_answer(where, created, list)


@tokens.command(name="show")
def show_tokens(user: str, *, where: Where = HERE) -> None:
    """List the access tokens of a user, without their texts.

    Example: braidlog tokens show anna
    """
    token_list = client_of(where).ask("GET", _path(user))["tokens"]
    columns = ("name", "created", "expires")
    rows = [
        {
            "name": token["name"],
            "created": time_text(token["created_us"]),
            "expires": None if token["expires_us"] is None else time_text(token["expires_us"]),
        }
        for token in token_list
    ]
    print_rows(where, token_list, columns, rows)


@tokens.command(name="revoke")
def revoke_token(user: str, name: str, *, yes: Yes = False, where: Where = HERE) -> None:
    """Revoke an access token. The token can never be used again.

    Example: braidlog tokens revoke anna laptop --yes
    """
    client = client_of(where)
    confirm(f"Revoke the token {name} of {user}?", yes=yes)
    client.ask("DELETE", f"{_path(user)}/tokens/{path_part(name)}")


@permissions.command(name="grant")
def grant(subject: str, action: str, resource: str, *, where: Where = HERE) -> None:
    """Allow a user, or `role:NAME`, an action on the resources that a pattern names.

    Example: braidlog permissions grant anna consume 'public/default/orders@billing'
    """
    wanted = {"subject": subject, "action": action, "resource": resource}

    client = client_of(where)
    client.ask("POST", PERMISSIONS, wanted)
    if not subject.startswith("role:") and not _is_known(client, subject):
        print(f"braidlog: there is no user {subject} yet; the grant is kept", file=sys.stderr)


@permissions.command(name="revoke")
def revoke(subject: str, action: str, resource: str, *, where: Where = HERE) -> None:
    """Revoke a permission, named as in its grant.

    Example: braidlog permissions revoke anna consume 'public/default/orders@billing'
    """
    wanted = {"subject": subject, "action": action, "resource": resource}
    client_of(where).ask("DELETE", f"{PERMISSIONS}?{urlencode(wanted)}")


@permissions.command(name="list")
def list_permissions(subject: str | None = None, *, where: Where = HERE) -> None:
    """List all granted permissions, or those of a user or role.

    Example: braidlog permissions list role:readers
    """
    query = f"?{urlencode({'subject': subject})}" if subject else ""
    grants = client_of(where).ask("GET", f"{PERMISSIONS}{query}")["permissions"]
    print_rows(where, grants, ("subject", "action", "resource"))


@permissions.command(name="test")
def test(user: str, action: str, resource: str, *, where: Where = HERE) -> None:
    """Test if a user has a permission; exits with 1 if not.

    Example: braidlog permissions test anna produce public/default/orders
    """
    wanted = urlencode({"user": user, "action": action, "resource": resource})
    if not client_of(where).ask("GET", f"{PERMISSIONS}/test?{wanted}")["allowed"]:
        raise AdminError(f"{user} may not {action} {resource}", EXIT_FAILED)
    print(f"{user} may {action} {resource}")


def _path(user: str) -> str:
    return f"{API}/users/{path_part(user)}"


def _is_known(client: AdminClient, name: str) -> bool:
    """Return True if the user exists; clients with certificates and signed tokens need no user."""
    try:
        client.ask("GET", _path(name))
    except AdminError as error:
        return error.exit_code != EXIT_NOT_FOUND
    return True


def _password(file: Path | None) -> str:
    """Read the password from the file or the terminal. Raises AdminError."""
    if file is None:
        if not sys.stdin.isatty():
            raise AdminError("no terminal to ask for the password: use --password-file", EXIT_USAGE)
        return getpass.getpass("Password: ")
    return first_line(file, "--password-file")


def _seconds(text: str) -> float:
    try:
        return parse_seconds(text, unit="s")
    except ValueError as error:
        raise AdminError(f"--expires {text}: {error}", EXIT_USAGE) from error
