"""The commands about users, tokens and permissions against a server with the answers of
docs/api.md.
"""

import getpass
import io
import json
import sys

import pytest

from braidlog.broker.cli.main import run
from tests.broker.cli.test_admin import fake

__all__ = ["fake"]  # A fixture.

ANNA = "/api/v1/users/anna"
USER = {
    "name": "anna",
    "id": 2,
    "active": True,
    "has_password": True,
    "roles": ["readers", "ops"],
    "tokens": [
        {"name": "laptop", "created_us": 1_795_228_435_964_000, "expires_us": None},
        {"name": "ci", "created_us": 1_795_228_435_964_000, "expires_us": 1_795_228_435_964_000},
    ],
}
GRANT = {"subject": "anna", "action": "consume", "resource": "public/default/*"}


@pytest.fixture
def command(fake, monkeypatch):
    """Return a function that runs a command against the server and returns its exit code."""
    monkeypatch.setenv("BRAIDLOG_URL", fake.url)
    return lambda *words: run(list(words))


@pytest.fixture
def password_file(tmp_path):
    path = tmp_path / "password"
    path.write_bytes(b"secret\r\nnot this line\n")
    return str(path)


def test_users_are_listed_as_a_table_and_as_json(fake, command, capsys):
    fake.answers["GET", "/api/v1/users"] = 200, {"users": [USER]}
    assert command("users", "list") == 0
    assert "readers, ops" in capsys.readouterr().out
    assert command("users", "list", "--output", "json") == 0
    assert json.loads(capsys.readouterr().out) == [USER]


def test_a_user_is_created_changed_and_removed(fake, command, password_file):
    for method in ("PUT", "PATCH", "DELETE"):
        fake.answers[method, ANNA] = 200, {}
    creation = ("users", "create", "anna")
    assert command(*creation, "--password-file", password_file, "--role", "a", "--role", "b") == 0
    assert command(*creation, "--no-password") == 0
    assert command("users", "password", "anna", "--password-file", password_file) == 0
    assert command("users", "alter", "anna", "--no-active") == 0
    assert command("users", "delete", "anna", "--yes") == 0
    assert [(method, body) for method, _, _, body in fake.asked] == [
        ("PUT", {"roles": ["a", "b"], "password": "secret"}),
        ("PUT", {"roles": []}),
        ("PATCH", {"password": "secret"}),
        ("PATCH", {"active": False, "roles": None}),
        ("DELETE", None),
    ]


def test_a_password_is_requested_only_at_a_terminal(fake, command, monkeypatch, capsys, tmp_path):
    fake.answers["PATCH", ANNA] = 200, {}
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert command("users", "password", "anna") == 2
    assert "use --password-file" in capsys.readouterr().err
    assert command("users", "password", "anna", "--password-file", str(tmp_path / "none")) == 2
    assert not fake.asked
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(getpass, "getpass", lambda prompt: "typed")
    assert command("users", "password", "anna") == 0
    assert fake.asked[-1][3] == {"password": "typed"}


def test_a_token_is_printed_once(fake, command, capsys):
    fake.answers["PUT", f"{ANNA}/tokens/laptop"] = 200, {"name": "laptop", "token": "t0"}
    fake.answers["GET", ANNA] = 200, USER
    fake.answers["DELETE", f"{ANNA}/tokens/laptop"] = 204, None
    assert command("tokens", "create", "anna", "laptop") == 0
    assert capsys.readouterr().out == "t0\n"
    assert command("tokens", "create", "anna", "laptop", "--expires", "90d") == 0
    assert fake.asked[0][3] == {} and fake.asked[1][3]["expires_us"] > 1_795_228_435_964_000
    assert command("tokens", "create", "anna", "laptop", "--expires", "soon") == 2
    capsys.readouterr()
    assert command("tokens", "show", "anna") == 0
    shown = capsys.readouterr().out
    assert "laptop" in shown and "ci" in shown and "t0" not in shown
    assert command("tokens", "revoke", "anna", "laptop", "--yes") == 0


def test_a_grant_to_an_unknown_user_is_kept_with_a_note(fake, command, capsys):
    fake.answers["POST", "/api/v1/permissions"] = 200, {}
    fake.answers["GET", "/api/v1/users/ann"] = 404, {"error_code": 40404, "message": "no user ann"}
    assert command("permissions", "grant", "ann", "consume", "public/default/t") == 0
    note = "braidlog: there is no user ann yet; the grant is kept\n"
    assert capsys.readouterr().err == note
    fake.answers["GET", "/api/v1/users/anna"] = 200, {"name": "anna"}
    for known in ("anna", "role:readers"):
        assert command("permissions", "grant", known, "consume", "public/default/t") == 0
        assert capsys.readouterr().err == ""


def test_permissions_are_granted_listed_tested_and_revoked(fake, command, capsys):
    path = "/api/v1/permissions"
    fake.answers["POST", path] = fake.answers["DELETE", path] = 200, {}
    fake.answers["GET", path] = 200, {"permissions": [GRANT]}
    words = tuple(GRANT.values())
    assert command("permissions", "grant", *words) == 0
    assert command("permissions", "revoke", *words) == 0
    assert command("permissions", "list", "anna", "--output", "json") == 0
    assert json.loads(capsys.readouterr().out) == [GRANT]
    for allowed, code in ((True, 0), (False, 1)):
        fake.answers["GET", f"{path}/test"] = 200, {"allowed": allowed}
        assert command("permissions", "test", *words) == code
