import shlex
from pathlib import Path

import pytest

from tests.cli.project import run
from tests.projects import land

FOLDER = "data/clicks/2013-11-03/05"


@pytest.mark.parametrize("instance", ["2013-11-03T05:00Z", "2013-11-03-05:00"])
def test_a_notice_is_recorded_once(submitted: Path, instance: str) -> None:
    land(submitted / FOLDER, "data")
    first = run("feed", "notify", "clicks", instance, "--key", "k1")
    again = run("feed", "notify", "clicks", instance, "--key", "k1")
    assert (first.exit_code, again.exit_code) == (0, 0), first.output
    assert first.stdout == "feed 'clicks' on primary at 2013-11-03T05:00Z: recorded, 4 bytes in 1 file\n"
    assert again.stdout == first.stdout
    assert "known already" in run("feed", "notify", "clicks", instance).stdout
    (submitted / FOLDER / "part.csv").write_text("other data")
    told = run("feed", "notify", "clicks", instance).stdout
    assert "known already, 4 bytes in 1 file; it has other content now, 10 bytes, to record it: feed-assets" in told
    assert run(*shlex.split(told.partition("record it: feed-assets ")[2])).stdout.endswith("10 bytes in 1 file\n")


def test_a_trusted_notice_needs_no_data(submitted: Path) -> None:
    result = run("feed", "notify", "clicks", "2013-11-03T05:00Z", "--trust", "--bytes", "9")
    assert (result.exit_code, "recorded" in result.stdout) == (0, True), result.output


def test_a_range_is_polled_at_once_and_what_is_absent_is_named(submitted: Path) -> None:
    land(submitted / FOLDER, "data")
    dry = run("feed", "notify", "clicks", "--start", "2013-11-03T04:00Z", "--end", "2013-11-03T08:00Z", "--dry-run")
    absent = "2013-11-03T04:00Z, 2013-11-03T06:00Z to 2013-11-03T07:00Z not there or incomplete"
    assert dry.stdout == f"feed 'clicks' on primary: 1 instance would be recorded, {absent}\n"
    assert "is MISSING" in run("why", "clicks", "2013-11-03T05:00Z").stdout
    first = run("feed", "notify", "clicks", "--start", "2013-11-03T04:00Z", "--end", "2013-11-03T08:00Z")
    assert first.stdout == f"feed 'clicks' on primary: 1 instance recorded, {absent}\n"
    again = run("feed", "notify", "clicks", "--start", "2013-11-03T05:00Z", "--end", "2013-11-03T06:00Z")
    assert again.stdout == "feed 'clicks' on primary: 0 instances recorded, 1 known already\n"
    assert "by notice:ann" in run("why", "clicks", "2013-11-03T05:00Z").stdout


def test_why_can_look_now_and_records_what_has_arrived(submitted: Path) -> None:
    assert run("feed", "notify", "clicks", "--start", "2013-11-03T05:00Z", "--end", "2013-11-03T06:00Z").exit_code == 0
    absent = run("why", "counting", "2013-11-03T05:00Z", "--look")
    assert "1 instance looked for in storage now, and not there or incomplete\n" in absent.stderr
    land(submitted / FOLDER, "data")
    assert "is MISSING" in run("why", "counting", "2013-11-03T05:00Z").stdout
    looked = run("why", "counting", "2013-11-03T05:00Z", "--look")
    assert looked.stderr == "1 instance found in storage and recorded\n"
    assert "is MISSING" not in looked.stdout
