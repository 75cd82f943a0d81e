"""Lines of the audit log over HTTP."""

import json
import random
from pathlib import Path

import pytest

from braidlog.protocols.http.management.audit_trail import BLOCK_BYTES, SEARCHED_BYTES_MAX
from tests.protocols.http.asgi import call

PATH = "/api/v1/audit"


def write(path, *numbers, **fields):
    lines = [{"event": "access", "principal": f"user{number}", **fields} for number in numbers]
    with open(path, "a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def names(answer):
    assert answer.status == 200, answer.body
    return [int(line["principal"].removeprefix("user")) for line in answer.json["lines"]]


@pytest.fixture
def file(broker, tmp_path):
    broker.audit.path = tmp_path / "audit.jsonl"
    return broker.audit.path


async def test_a_broker_without_an_audit_log_says_so(app):
    assert (await call(app, "GET", PATH)).json == {"on": False, "lines": [], "next": None}


async def test_the_newest_lines_come_first_in_pages_over_both_files(app, file):
    write(Path(f"{file}.1"), *range(5))
    write(file, *range(5, 10))
    assert names(await call(app, "GET", PATH)) == list(range(9, -1, -1))
    answer = await call(app, "GET", f"{PATH}?limit=4")
    pages = [names(answer)]
    write(file, 99)  # A new line moves no page.
    while answer.json["next"]:
        answer = await call(app, "GET", f"{PATH}?limit=4&before={answer.json['next']}")
        pages.append(names(answer))
    assert pages == [[9, 8, 7, 6], [5, 4, 3, 2], [1, 0]]


async def test_lines_are_whole_wherever_the_blocks_end(app, file):
    random_sizes = random.Random(5)
    for number in range(100):
        write(file, number, padding="x" * random_sizes.randrange(2 * BLOCK_BYTES // 30))
    with open(file, "a") as cut:
        cut.write('{"principal": "user')  # Still being written.
    assert file.stat().st_size > 2 * BLOCK_BYTES
    assert names(await call(app, "GET", PATH)) == list(range(99, -1, -1))


async def test_lines_are_filtered(app, file):
    write(file, 1, allowed=True)
    write(file, 2, allowed=False, resource="public/default/Orders")
    write(file, 3, event="login", allowed=False)
    assert names(await call(app, "GET", f"{PATH}?refused=true")) == [3, 2]
    assert names(await call(app, "GET", f"{PATH}?event=login")) == [3]
    assert names(await call(app, "GET", f"{PATH}?contains=orDERS")) == [2]
    assert names(await call(app, "GET", f"{PATH}?contains=nobody")) == []


async def test_a_search_has_a_budget_and_goes_on(app, file):
    padding = "x" * BLOCK_BYTES
    write(file, *range(80), padding=padding)
    answer = await call(app, "GET", f"{PATH}?contains=user0")
    steps = 0
    while not names(answer):
        answer = await call(app, "GET", f"{PATH}?contains=user0&before={answer.json['next']}")
        steps += 1
    assert names(answer) == [0]
    assert steps == file.stat().st_size // SEARCHED_BYTES_MAX


async def test_lines_that_are_no_json_are_left_out(app, file):
    write(file, 1)
    with open(file, "ab") as other:
        other.write(b"\n\xff\x00 rubbish\n[1]\n")
    write(file, 2)
    assert names(await call(app, "GET", PATH)) == [2, 1]


async def test_a_place_in_a_file_that_is_gone_has_no_lines(app, file):
    write(file, 1)
    assert names(await call(app, "GET", f"{PATH}?before=1-999")) == []
    answer = await call(app, "GET", f"{PATH}?before=x")
    assert (answer.status, answer.json["code"]) == (400, "bad_query")
