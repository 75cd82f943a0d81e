"""Which broker and login a command uses: flags, environment, contexts file."""

from pathlib import Path

import pytest

from braidlog.broker.cli.contexts import DEFAULT_URL, contexts_file, resolve
from braidlog.broker.cli.failures import EXIT_NOT_FOUND, EXIT_USAGE, AdminError

FILE = """
default = "local"
[contexts.local]
url = "http://local:1"
[contexts.prod]
url = "https://prod:2"
token_file = "prod.token"
ca_file = "/ca.crt"
[contexts.anna]
url = "http://anna:3"
user = "anna"
password_file = "anna.txt"
"""


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "contexts.toml").write_text(FILE)
    (tmp_path / "prod.token").write_text("secret\r\n")
    (tmp_path / "anna.txt").write_text("password\n")
    return {"BRAIDLOG_CONTEXTS": str(tmp_path / "contexts.toml")}


def test_without_any_setting_the_broker_is_on_this_machine(tmp_path):
    assert resolve(None, None, None, {"HOME": str(tmp_path)}) == (DEFAULT_URL, {})


def test_the_default_context_is_used_without_an_address(environment):
    assert resolve(None, None, None, environment) == ("http://local:1", {})


def test_a_context_brings_its_login(environment):
    url, login = resolve(None, "prod", None, environment | {"BRAIDLOG_TOKEN": "other"})
    assert url == "https://prod:2"
    assert login == {"BRAIDLOG_TOKEN": "secret", "BRAIDLOG_CA_FILE": "/ca.crt"}
    _, login = resolve(None, "anna", None, environment | {"BRAIDLOG_TOKEN": "other"})
    assert login["BRAIDLOG_TOKEN"] == ""
    assert (login["BRAIDLOG_USER"], login["BRAIDLOG_PASSWORD"]) == ("anna", "password")


def test_an_address_alone_never_gets_the_login_of_a_context(environment):
    named = environment | {"BRAIDLOG_CONTEXT": "prod"}
    assert resolve("http://x:9", None, None, named) == ("http://x:9", {})
    in_variable = environment | {"BRAIDLOG_URL": "http://y:8"}
    assert resolve(None, None, None, in_variable) == ("http://y:8", {})


def test_flags_win_over_the_environment(environment, tmp_path):
    variables = environment | {"BRAIDLOG_URL": "http://y:8", "BRAIDLOG_CONTEXT": "anna"}
    assert resolve(None, "prod", None, variables)[0] == "https://prod:2"
    _, login = resolve("http://x:9", None, tmp_path / "anna.txt", variables)
    assert login == {"BRAIDLOG_TOKEN": "password"}


@pytest.mark.parametrize(
    ("text", "name", "code", "reason"),
    [
        (FILE, "nope", EXIT_NOT_FOUND, "there are: anna, local, prod"),
        ("= x", "nope", EXIT_USAGE, "not TOML"),
        ("contexts = 7", "nope", EXIT_NOT_FOUND, "there are: none"),
        ("[contexts.a]\nurk = 'x'", "a", EXIT_USAGE, "unknown field 'urk'"),
        ("[contexts.a]\nurl = 7", "a", EXIT_USAGE, "a.url: expected text"),
        ("[contexts.a]\ntoken_file = 'gone'", "a", EXIT_USAGE, "No such file"),
        ("default = 'a'", None, EXIT_NOT_FOUND, "no context 'a'"),
    ],
)
def test_a_bad_file_is_an_error_with_its_place(tmp_path, text, name, code, reason):
    file = tmp_path / "contexts.toml"
    file.write_text(text)
    with pytest.raises(AdminError) as caught:
        resolve(None, name, None, {"BRAIDLOG_CONTEXTS": str(file)})
    assert reason in str(caught.value)
    assert str(file.parent) in str(caught.value)
    assert caught.value.exit_code == code


def test_the_file_is_in_the_users_configuration_folder():
    assert contexts_file({"HOME": "/h"}) == Path("/h/.config/braidlog/contexts.toml")
    assert contexts_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/braidlog/contexts.toml")
