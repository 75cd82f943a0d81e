"""Who may log in."""

import pytest

from braidlog.protocols.iggy.options import IggyOptions


def test_without_a_file_root_is_that_of_a_fresh_iggy_server():
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
def test_password_file_that_gives_no_password_is_told(tmp_path, content):
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match="password_file"):
        IggyOptions(password_file=str(file)).check()


def test_password_file_that_is_not_there_is_named_without_a_number():
    with pytest.raises(ValueError, match=r"^password_file: /no/such: No such file or directory$"):
        IggyOptions(password_file="/no/such").check()
