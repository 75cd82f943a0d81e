"""`braidlog users`, `braidlog tokens`, `braidlog permissions`: logins and permissions.

Secrets are never arguments, which every user of a machine can read: passwords come from a file or
the terminal, and a token's text is printed once. Knows no broker but its JSON API.
"""

from __future__ import annotations

import getpass
import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from braidlog.broker.cli.client import (
    EXIT_FAILED,
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    AdminClient,
    AdminError,
    Json,
)
from braidlog.broker.cli.confirming import Yes, confirm
from braidlog.broker.cli.output import (
    HERE,
    Where,
    print_answer,
    print_rows,
    run_command,
    time_text,
)
from braidlog.broker.config.units import parse_seconds

users = App(name="users", help="List, make, change and remove users.")
tokens = App(name="tokens", help="Make, list and take back access tokens.")
permissions = App(name="permissions", help="Grant, take back, list and test permissions.")

PasswordFile = Annotated[
    Path | None,
    Parameter(help="Its first line is the password; without it the password is asked for."),
]
Roles = Annotated[list[str] | None, Parameter(name="--role", negative="", help="Repeatable.")]


@users.command(name="list")
def list_users(*, where: Where = HERE) -> int:
    """List all users.

    Example: braidlog users list
    """

    def ask(client: AdminClient) -> None:
        user_list = client.users()
        columns = ("name", "id", "active", "has_password", "roles", "tokens")
        rows = [
            {**user, "roles": ", ".join(user["roles"]), "tokens": len(user["tokens"])}
            for user in user_list
        ]
        print_rows(where, user_list, columns, rows)

    return run_command(where, ask)


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
) -> int:
    """Create a user.

    Example: braidlog users create anna --password-file anna.txt
    """

    def ask(client: AdminClient) -> None:
        body: Json = {"roles": role or []}
        if not no_password:
            body["password"] = _password(password_file)
        client.user(user, "PUT", body)

    return run_command(where, ask)


@users.command(name="password")
def set_password(user: str, *, password_file: PasswordFile = None, where: Where = HERE) -> int:
    """Set a new password for a user.

    Example: braidlog users password anna
    """

    def ask(client: AdminClient) -> None:
        client.user(user, "PATCH", {"password": _password(password_file)})

    return run_command(where, ask)


@users.command(name="alter")
def alter_user(
    user: str,
    *,
    active: Annotated[bool | None, Parameter(help="Whether they may come in.")] = None,
    role: Roles = None,
    where: Where = HERE,
) -> int:
    """Replace a user's roles, lock a user out or allow logins again.

    Example: braidlog users alter anna --no-active
    """
    return run_command(
        where, lambda client: _done(client.user(user, "PATCH", {"active": active, "roles": role}))
    )


@users.command(name="delete")
def delete_user(user: str, *, yes: Yes = False, where: Where = HERE) -> int:
    """Remove a user with all tokens and permissions. Connections with the user's password or tokens
    end.

    Example: braidlog users delete anna --yes
    """

    def ask(client: AdminClient) -> None:
        confirm(f"Delete the user {user} with all tokens and permissions?", yes=yes)
        client.user(user, "DELETE")

    return run_command(where, ask)


@tokens.command(name="create")
def create_token(
    user: str,
    name: str,
    *,
    expires: Annotated[str | None, Parameter(help="As 90d; without it: never.")] = None,
    where: Where = HERE,
) -> int:
    """Create an access token and print the token. The token cannot be shown again.

    Example: braidlog tokens create anna laptop --expires 90d
    """

    def ask(client: AdminClient) -> None:
        body: Json = {}
        if expires is not None:
            body["expires_us"] = time.time_ns() // 1000 + int(_seconds(expires) * 1_000_000)
        created = client.token(user, name, "PUT", body)
        if where.output == "table":
            print(created["token"])
        else:
            print_answer(where, created, list)

    return run_command(where, ask)


@tokens.command(name="show")
def show_tokens(user: str, *, where: Where = HERE) -> int:
    """List the access tokens of a user, without their texts.

    Example: braidlog tokens show anna
    """

    def ask(client: AdminClient) -> None:
        token_list = client.user(user)["tokens"]
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

    return run_command(where, ask)


@tokens.command(name="revoke")
def revoke_token(user: str, name: str, *, yes: Yes = False, where: Where = HERE) -> int:
    """Revoke an access token. The token can never be used again.

    Example: braidlog tokens revoke anna laptop --yes
    """

    def ask(client: AdminClient) -> None:
        confirm(f"Revoke the token {name} of {user}?", yes=yes)
        client.token(user, name, "DELETE")

    return run_command(where, ask)


@permissions.command(name="grant")
def grant(subject: str, action: str, resource: str, *, where: Where = HERE) -> int:
    """Allow a user, or `role:NAME`, an action on the resources that a pattern names.

    Example: braidlog permissions grant anna consume 'public/default/orders@billing'
    """
    wanted = {"subject": subject, "action": action, "resource": resource}

    def ask(client: AdminClient) -> None:
        client.grant(wanted)
        if not subject.startswith("role:") and not _is_known(client, subject):
            print(f"braidlog: there is no user {subject} yet; the grant is kept", file=sys.stderr)

    return run_command(where, ask)


@permissions.command(name="revoke")
def revoke(subject: str, action: str, resource: str, *, where: Where = HERE) -> int:
    """Revoke a permission, named as in its grant.

    Example: braidlog permissions revoke anna consume 'public/default/orders@billing'
    """
    grant = {"subject": subject, "action": action, "resource": resource}
    return run_command(where, lambda client: _done(client.revoke(grant)))


@permissions.command(name="list")
def list_permissions(subject: str | None = None, *, where: Where = HERE) -> int:
    """List all granted permissions, or those of a user or role.

    Example: braidlog permissions list role:readers
    """

    def ask(client: AdminClient) -> None:
        grants = client.permissions(subject)
        print_rows(where, grants, ("subject", "action", "resource"))

    return run_command(where, ask)


@permissions.command(name="test")
def test(user: str, action: str, resource: str, *, where: Where = HERE) -> int:
    """Test if a user has a permission; exits with 1 if not.

    Example: braidlog permissions test anna produce public/default/orders
    """

    def ask(client: AdminClient) -> None:
        if not client.is_allowed(user, action, resource):
            raise AdminError(f"{user} may not {action} {resource}", EXIT_FAILED)
        print(f"{user} may {action} {resource}")

    return run_command(where, ask)


def _is_known(client: AdminClient, name: str) -> bool:
    """Return True if the user exists; clients with certificates and signed tokens need no user."""
    try:
        client.user(name)
    except AdminError as error:
        return error.exit_code != EXIT_NOT_FOUND
    return True


def _password(file: Path | None) -> str:
    """Read the password from the file or the terminal. Raises AdminError."""
    if file is None:
        if not sys.stdin.isatty():
            raise AdminError("no terminal to ask at: use --password-file", EXIT_USAGE)
        return getpass.getpass("Password: ")
    try:
        first_line, _, _ = file.read_text("utf-8").partition("\n")
    except OSError as error:
        raise AdminError(f"{file}: {error.strerror}", EXIT_USAGE) from error
    except UnicodeDecodeError as error:
        raise AdminError(f"{file}: the password is not UTF-8", EXIT_USAGE) from error
    return first_line.rstrip("\r")


def _seconds(text: str) -> float:
    try:
        return parse_seconds(text, unit="s")
    except ValueError as error:
        raise AdminError(f"--expires {text}: {error}", EXIT_USAGE) from error


def _done(_: object) -> None:
    """Print nothing: the exit code says enough."""
