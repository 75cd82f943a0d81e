"""The matrix as Markdown, HTML and JSON, from made-up outcomes."""

import json
from dataclasses import replace

from conformance.report import MatrixRun, from_json, to_html, to_json, to_markdown
from conformance.runner import FAIL, PASS, SKIPPED, CaseOutcome, cells, find_cases

PAIR = ("kafka-python", "pulsar-client")
BACK = ("pulsar-client", "kafka-python")
OUTCOMES = [
    CaseOutcome("values_pairwise", PAIR, PASS, "", 0.5, "Values arrive."),
    CaseOutcome("values_pairwise", BACK, FAIL, "<lost> 'one'", 0.5, "Values arrive."),
    CaseOutcome("raw_headers", ("raw frames",), SKIPPED, "no iggy address", 0.1, "Headers arrive."),
]
RUN = MatrixRun("2026-01-02", "Braidlog 1", 1.25, OUTCOMES)


def test_markdown_shows_a_square_of_writers_and_readers_and_why_a_cell_failed():
    text = to_markdown(RUN)
    assert "1 pass, 1 fail, 1 skipped" in text
    assert "| writes \\ reads | pulsar-client 3.13.0 | kafka-python 3.0.12 |" in text
    assert "| pulsar-client 3.13.0 |  | **FAIL** |" in text
    assert "* pulsar-client 3.13.0 > kafka-python 3.0.12: fail: <lost> 'one'" in text
    assert "| raw frames | skipped |" in text


def test_each_cell_of_the_page_leads_to_the_command_that_repeats_it():
    page = to_html(RUN)
    for outcome in OUTCOMES:
        anchor = "-".join((outcome.case, *outcome.clients)).replace(" ", "-")
        assert f"href='#{anchor}'" in page and f"id='{anchor}'" in page
    assert "--cell &#x27;values_pairwise:pulsar-client,kafka-python&#x27;" in page
    assert "<lost>" not in page and "&lt;lost&gt;" in page


def test_json_holds_every_cell():
    run = json.loads(to_json(RUN))
    assert [cell["result"] for cell in run["cells"]] == [PASS, FAIL, SKIPPED]
    assert run["cells"][0]["versions"] == ["kafka-python 3.0.12", "pulsar-client 3.13.0"]


def test_json_round_trips():
    assert from_json(to_json(RUN)) == replace(RUN, seconds=1.2)


def test_other_brokers_results_stand_beside_their_cells():
    kafka = MatrixRun(
        "2026-01-02", "Kafka 4", 1.0, [replace(OUTCOMES[1], result=PASS), OUTCOMES[2]]
    )
    text = to_markdown(RUN, [kafka])
    assert "| cell | Braidlog 1 | Kafka 4 |" in text
    row = "| Values pairwise: pulsar-client 3.13.0 > kafka-python 3.0.12 | **FAIL** | pass |"
    assert row in text
    assert text.count("Values pairwise: ") == 1 and "Raw headers: " not in text
    page = to_html(RUN, [kafka])
    assert "<th>Kafka 4" in page and page.count("<td>Values pairwise: ") == 1


def test_a_cell_is_selected_by_its_name_in_the_report():
    every = cells(find_cases([]))
    for module, names in every:
        wanted = f"{module.__name__.rpartition('.')[2]}:{','.join(names)}"
        assert (module, names) in cells(find_cases([]), wanted)
    assert cells(find_cases([]), "no_such_case:raw frames") == []
