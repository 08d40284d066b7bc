"""One trace a run, whole although its worker died: what it was told, and what the outside was told, is one story."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from milepost.core.tracing import trace_of

ROOT = Path(__file__).resolve().parents[3]


def lives(folder: Path) -> subprocess.CompletedProcess[str]:
    """Let the desk live once."""
    command = [sys.executable, "-m", "tests.adapters.opentelemetry.program", str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A desk that was killed in the middle of its second tool, and lived again."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "die").touch()
    assert lives(folder).returncode == -9
    second = lives(folder)
    assert (second.returncode, second.stdout) == (0, "order-1\n"), second.stderr
    return folder


def spans_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "spans.jsonl").read_text().splitlines()]


def ledger_of(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def journal_of(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "milepost", "journal", "--store", f"sqlite:///{folder / 'desk.db'}", "--json"]
    listed = subprocess.run(
        [*command[:3], "runs", *command[4:]], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    (run,) = json.loads(listed.stdout)
    told = subprocess.run([*command, run["run"]], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return {"run": run["run"], "entries": json.loads(told.stdout)}


def test_one_trace_id_connects_the_record_the_spans_of_both_processes_and_what_was_sent(story: Path) -> None:
    """Requirement 89."""
    journal = journal_of(story)
    trace = trace_of(journal["run"])

    assert trace in json.dumps(journal["entries"][0])
    assert {span["context"]["trace_id"] for span in spans_of(story)} == {f"0x{trace}"}
    assert {line["traceparent"].split("-")[1] for line in ledger_of(story)} == {trace}


def test_no_span_is_told_twice_and_all_hang_below_the_run(story: Path) -> None:
    spans = {span["context"]["span_id"]: span for span in spans_of(story)}
    (root,) = [span for span in spans.values() if span["parent_id"] is None]

    assert len(spans) == len(spans_of(story))
    assert root["name"] == "run desk"
    assert root["attributes"]["milepost.status"] == "done"
    assert [span["name"] for span in spans.values() if span["parent_id"] not in {None, *spans}] == []


def test_the_attempt_that_died_is_told_by_who_took_over_and_is_no_error(story: Path) -> None:
    (paid,) = [span for span in spans_of(story) if span["name"] == "execute_tool pay"]

    assert paid["attributes"]["milepost.outcome"] == "unknown"
    assert paid["status"]["status_code"] == "UNSET"
    (looked,) = [span for span in spans_of(story) if span["name"] == "reconcile pay"]
    assert looked["attributes"]["milepost.finding"] == "happened"
    assert [link["context"]["span_id"] for link in looked["links"]] == [paid["context"]["span_id"]]


def test_the_stay_that_goes_on_is_linked_to_the_one_that_was_interrupted(story: Path) -> None:
    first, second = sorted(
        (span for span in spans_of(story) if span["name"] == "segment paying"), key=lambda span: span["start_time"]
    )

    assert first["attributes"]["milepost.interrupted"] is True
    assert [link["context"]["span_id"] for link in second["links"]] == [first["context"]["span_id"]]
    assert first["attributes"]["milepost.epoch"] < second["attributes"]["milepost.epoch"]


def test_what_a_tool_sends_along_names_the_span_of_its_own_attempt(story: Path) -> None:
    sent = {f"0x{line['traceparent'].split('-')[2]}" for line in ledger_of(story)}

    attempts = {s["context"]["span_id"] for s in spans_of(story) if s["name"].startswith("execute_tool")}
    assert sent == attempts


def test_attributes_are_those_that_the_conventions_name(story: Path) -> None:
    (booked,) = [span for span in spans_of(story) if span["name"] == "execute_tool book"]

    assert booked["attributes"]["gen_ai.operation.name"] == "execute_tool"
    assert booked["attributes"]["gen_ai.tool.name"] == "book"
    assert booked["kind"] == "SpanKind.CLIENT"
