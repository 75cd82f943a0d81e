"""Settings as rows."""

from braidlog.broker.config.rows import HIDDEN, setting_rows
from braidlog.broker.config.settings import load


def test_a_password_is_hidden_with_its_source():
    text = "postgresql://anna:pa55@db/braidlog"
    flag = ("shared.database", text, f"--set shared.database={text}")
    rows = {row["setting"]: row for row in setting_rows(load(flags=[flag], environment={}), ())}
    row = rows["shared.database"]
    assert (row["value"], row["source"]) == (HIDDEN, "--set shared.database")
    assert "pa55" not in str(rows)
