from pathlib import Path

import pytest

from tests.cli.project import must, prepare, run
from tests.projects import enter, land

FOLDER = "data/clicks/2013-11-03/05"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    enter(tmp_path, monkeypatch)
    prepare(tmp_path)
    assert run("entity", "submit", "all.yaml").exit_code == 0
    return tmp_path


@pytest.mark.parametrize("instance", ["2013-11-03T05:00Z", "2013-11-03-05:00"])
def test_a_notice_is_recorded_once(project: Path, instance: str) -> None:
    land(project / FOLDER, "data")
    first = run("feed", "notify", "clicks", instance, "--key", "k1")
    again = run("feed", "notify", "clicks", instance, "--key", "k1")
    assert (first.exit_code, again.exit_code) == (0, 0), first.output
    assert first.stdout == "feed 'clicks' on primary at 2013-11-03T05:00Z: recorded, 4 bytes in 1 file\n"
    assert again.stdout == "feed 'clicks' on primary at 2013-11-03T05:00Z: known already, 4 bytes in 1 file\n"


@pytest.mark.parametrize(
    ("instance", "code", "message"),
    [("2013-11-03T05:00Z", 1, "does not exist"), ("tomorrow", 2, "'tomorrow' is not a date and time")],
)
def test_a_wrong_notice_is_refused_with_a_sentence(project: Path, instance: str, code: int, message: str) -> None:
    result = must("feed", "notify", "clicks", instance, code=code)
    assert message in result.stderr
    assert result.stdout == ""


def test_a_trusted_notice_needs_no_data(project: Path) -> None:
    result = run("feed", "notify", "clicks", "2013-11-03T05:00Z", "--trust", "--bytes", "9")
    assert (result.exit_code, "recorded" in result.stdout) == (0, True), result.output


def test_a_range_is_polled_at_once_and_what_is_absent_is_named(project: Path) -> None:
    land(project / FOLDER, "data")
    dry = run("feed", "notify", "clicks", "--start", "2013-11-03T04:00Z", "--end", "2013-11-03T08:00Z", "--dry-run")
    absent = "2013-11-03T04:00Z, 2013-11-03T06:00Z to 2013-11-03T07:00Z not there or incomplete"
    assert dry.stdout == f"feed 'clicks' on primary: 1 instance would be recorded, {absent}\n"
    assert "is MISSING" in run("why", "clicks", "2013-11-03T05:00Z").stdout
    first = run("feed", "notify", "clicks", "--start", "2013-11-03T04:00Z", "--end", "2013-11-03T08:00Z")
    assert first.stdout == f"feed 'clicks' on primary: 1 instance recorded, {absent}\n"
    again = run("feed", "notify", "clicks", "--start", "2013-11-03T05:00Z", "--end", "2013-11-03T06:00Z")
    assert again.stdout == "feed 'clicks' on primary: 0 instances recorded, 1 known already\n"
    assert "by notice:ann" in run("why", "clicks", "2013-11-03T05:00Z").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["clicks"], "neither its time nor the path of an instance is given"),
        (["clicks", "2013-11-03T05:00Z", "--start", "2013-11-03T05:00Z"], "Give either INSTANCE or --start."),
        (["clicks", "--start", "2013-11-03T05:00Z", "--trust"], "are of one INSTANCE"),
        (["counts", "--start", "2013-11-03T05:00Z"], "counting writes it"),
        (["clicks", "--start", "2013-11-03T05:00Z", "--end", "2013-11-03T05:00Z"], "no instance in this range"),
    ],
)
def test_a_wrong_range_is_refused_with_a_sentence(project: Path, arguments: list[str], message: str) -> None:
    result = run("feed", "notify", *arguments)
    assert result.exit_code != 0
    assert message in result.stderr


def test_why_can_look_now_and_records_what_has_arrived(project: Path) -> None:
    assert run("feed", "notify", "clicks", "--start", "2013-11-03T05:00Z", "--end", "2013-11-03T06:00Z").exit_code == 0
    absent = run("why", "counting", "2013-11-03T05:00Z", "--look")
    assert "1 instance looked for in storage now, and not there or incomplete\n" in absent.stderr
    land(project / FOLDER, "data")
    assert "is MISSING" in run("why", "counting", "2013-11-03T05:00Z").stdout
    looked = run("why", "counting", "2013-11-03T05:00Z", "--look")
    assert looked.stderr == "1 instance found in storage and recorded\n"
    assert "is MISSING" not in looked.stdout


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ('{"rows": 1, "rows": 2}', "the key 'rows' stands twice"),
        ("[" * 100_000, "nested too deep"),
        ('{"a": "\udcff"', "is not a JSON object"),
        ("[1]", "is not a JSON object"),
    ],
)
def test_a_payload_that_is_no_plain_object_of_json_is_wrong_usage(project: Path, payload: str, reason: str) -> None:
    land(project / FOLDER, "data")
    result = run("feed", "notify", "clicks", "2013-11-03T05:00Z", "--payload", payload)
    assert (result.exit_code, reason in result.stderr, len(result.stderr) < 1_000) == (2, True, True), result.stderr
