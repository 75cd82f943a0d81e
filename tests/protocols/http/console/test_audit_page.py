"""The page of the audit trail."""

import json


async def test_the_page_says_that_there_is_no_audit_log(browser):
    assert "keeps no audit log" in (await browser.get("/ui/audit")).text


async def test_lines_are_shown_filtered_and_escaped(browser, broker, tmp_path):
    broker.audit.path = tmp_path / "audit.jsonl"
    first = {"time": "2026", "event": "access", "principal": "<b>\u202e", "action": "produce"}
    lines = [first | {"allowed": False, "count": 3}, {"event": "login", "allowed": True}]
    broker.audit.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = await browser.get("/ui/audit")
    assert "2026 access <b>\\u202e action produce refused 3" in page.text
    assert "b" not in page.elements and "allowed" in page.text
    page = await browser.get("/ui/audit?refused=true&contains=PRODUCE&event=access")
    assert "produce" in page.text and "login allowed" not in page.text
    assert "No such line" in (await browser.get("/ui/audit?contains=nobody")).text


async def test_older_lines_are_a_click_away(browser, broker, tmp_path):
    broker.audit.path = tmp_path / "audit.jsonl"
    lines = [{"event": "login", "principal": f"user-{number:03}"} for number in range(150)]
    broker.audit.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = await browser.get("/ui/audit")
    assert "user-149" in page.text and "user-049" not in page.text
    page = await browser.get(next(link for link in page.links if "before=" in link))
    assert "user-049" in page.text and "user-149" not in page.text
