"""Login options of the listener."""

import pytest

from braidlog.protocols.iggy.options import IggyOptions


def test_without_a_file_root_equals_a_fresh_iggy_servers():
    options = IggyOptions()
    options.check()
    assert (options.username, options.password()) == ("iggy", "iggy")


@pytest.mark.parametrize("text", ["s3cret", "s3cret\n", "s3cret\r\n", "s3cret\nignored\n"])
def test_password_is_the_first_line_of_its_file(tmp_path, text):
    file = tmp_path / "password"
    file.write_bytes(text.encode())
    options = IggyOptions(password_file=str(file))
    options.check()
    assert options.password() == "s3cret"


def test_password_file_may_change_while_the_broker_runs(tmp_path):
    file = tmp_path / "password"
    file.write_text("old")
    options = IggyOptions(password_file=str(file))
    file.write_text("new")
    assert options.password() == "new"


@pytest.mark.parametrize("content", [None, b"", b"\nsecond", b"\xff\xfe"])
def test_a_password_file_without_password_is_reported(tmp_path, content):
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match="password_file"):
        IggyOptions(password_file=str(file)).check()


def test_a_missing_password_file_is_named_without_errno():
    with pytest.raises(ValueError, match=r"^password_file: /no/such: No such file or directory$"):
        IggyOptions(password_file="/no/such").check()
