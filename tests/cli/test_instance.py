from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from feed_assets.clock import FrozenClock
from tests.cli.project import below, let_ticks_come, must, ok, prepare, rows, run, shown
from tests.definitions.verbs.harness import ALL, COUNTING, NOON
from tests.projects import land

TIME = "2013-11-03T05:00Z"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Clicks are counted; nothing has arrived, and no tick has been."""
    prepare(tmp_path)
    (tmp_path / "all.yaml").rename(tmp_path / "entities/all.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("feed_assets.context.operation.open_clock", lambda _: FrozenClock(NOON))
    return tmp_path


def test_a_list_has_a_line_for_each_instance_and_says_that_there_are_more(project: Path) -> None:
    result = run("instance", "list", "FEED", "clicks", "--num-results", "2", "--start", "2013-11-03T00:00Z")
    assert [row[:3] for row in rows(ok(result))] == [
        ["primary", "2013-11-03T00:00Z", "MISSING"],
        ["primary", "2013-11-03T01:00Z", "MISSING"],
    ]
    assert result.stderr == "2 of 12 instances; --num-results and --offset show more\n"
    assert rows(ok(run("instance", "status", "process", "counting"))) == []


def test_row_117_a_listing_with_a_look(project: Path) -> None:
    folder = project / "data/clicks/2013-11-03/12"
    land(folder, "12345")
    head, *_, last = ok(run("instance", "listing", "clicks", "--look")).splitlines()
    line = last.split("\t")
    assert head.split("\t")[6] == "url"
    assert line[:5] == ["primary", "2013-11-03T12:00Z", "AVAILABLE", "5 bytes", "1"]
    assert line[6] == f"file://{folder}"
    assert rows(ok(run("instance", "listing", "clicks", "--filter-by", "STATUS:AVAILABLE"))) == []


def test_a_listing_from_a_start_on_has_as_many_as_wanted(project: Path) -> None:
    land(project / "data/clicks/2013-11-03/03", "12345")
    since = ("instance", "listing", "clicks", "--start", "2013-11-03T01:00Z")
    assert len(rows(ok(run(*since)))) == 12
    for more, hours, told in (
        ((), (1, 2), "2 of 12 instances; --num-results shows more"),
        (("--filter-by", "STATUS:MISSING"), (1, 2), "2 of 12 instances; --num-results shows more"),
        (("--filter-by", "STATUS:PARTIAL,STATUS:AVAILABLE", "--look"), (3,), ""),
    ):
        found = run(*since, *more, "--num-results", "2")
        assert [row[1] for row in rows(ok(found))] == [f"2013-11-03T0{hour}:00Z" for hour in hours]
        assert told in found.stderr


def test_row_118_a_dependency_as_text_and_a_misaligned_time(project: Path) -> None:
    lines = below(ok(run("instance", "dependency", "feed", "clicks", TIME))).splitlines()
    assert lines == ["Input\tprocess\tcounting\tprimary\t2013-11-03T05:00Z\tclicks"]
    wrong = run("instance", "dependency", "feed", "clicks", "2013-11-03T05:30Z")
    assert (wrong.exit_code, rows(wrong.stdout)) == (1, [])
    assert "it is between two instances" in wrong.stderr
    assert wrong.stderr.endswith("feed-assets: FAILED\n")


def test_row_121_a_partial_result_exits_with_1(project: Path) -> None:
    result = must("instance", "list", "feed", "clicks", "--clusters", "primary,mars", code=1)
    assert len(rows(result.stdout)) == 10
    refused = "mars/feed 'clicks': it is not on cluster 'mars'. It is on primary.\nfeed-assets: PARTIAL\n"
    assert result.stderr == f"10 of 60 instances; --num-results and --offset show more\n{refused}"


def test_why_begins_with_the_root_causes(project: Path) -> None:
    text = ok(run("why", "counting", TIME))
    assert text.splitlines()[0] == "process counting on primary at 2013-11-03T05:00Z is UNSCHEDULED"
    assert text.splitlines()[1] == "  because feed clicks on primary at 2013-11-03T05:00Z is MISSING"
    document = shown("why", "counting", TIME)
    (root,) = [each for each in document["root_causes"] if each["kind"] == "feed"]
    assert (document["result"], root["name"]) == ("SUCCEEDED", "clicks")


def test_why_begins_with_a_daemon_that_is_down(project: Path) -> None:
    url = f"sqlite:///{project}/state.db"
    let_ticks_come(url, until=timedelta(minutes=7, seconds=20))
    first, second, *_ = ok(run("why", "counting", TIME)).splitlines()
    assert first.startswith("no tick of cluster primary has come for 7 minutes, since 20")
    assert first.endswith(
        "Z: nothing is polled, made ready or requested. Start Dagster (`dagster dev`, or `dagster-daemon run`); "
        "if it runs, see there what its arrival sensor says."
    )
    assert second == "process counting on primary at 2013-11-03T05:00Z is UNSCHEDULED"
    assert shown("why", "counting", TIME)["no_ticks"] == first
    land(project / "data/clicks/2013-11-03/05")
    assert run("feed", "notify", "clicks", TIME).stderr == f"{first}\n"
    assert run("feed", "notify", "clicks", "--start", TIME).stderr.endswith(f"{first}\n")
    assert "no tick" not in run("why", "clicks", TIME).stdout, "nothing has to be done for what is there"
    let_ticks_come(url)
    assert "no tick of" not in run("why", "counting", TIME).stdout


def test_many_inputs_are_told_as_ranges(project: Path) -> None:
    window = {"clicks": {"feed": "clicks", "start": "now(-23,0)", "end": "now(0,0)"}}
    later = {"primary": {"validity": {"start": "2013-11-02T00:00Z", "end": "2013-12-01T00:00Z"}}}
    reading = {**COUNTING, "inputs": window, "clusters": later}
    documents = [reading if each is COUNTING else each for each in ALL]
    (project / "entities" / "all.yaml").write_text(yaml.safe_dump_all(documents, sort_keys=False))
    text = ok(run("why", "counting", TIME))
    day = "2013-11-02T06:00Z to 2013-11-03T05:00Z"
    assert f"  - input clicks lacks 24 of 24 instances of feed clicks, {day}; the oldest 5 are" in text.splitlines()
    oldest = "2013-11-02T06:00Z to 2013-11-02T10:00Z"
    assert text.splitlines()[1] == f"  because feed clicks on primary at {oldest} is MISSING (5 instances)"
    everything = ok(run("why", "counting", TIME, "--all")).splitlines()
    assert len([line for line in everything if line.endswith("is MISSING")]) == 5
    lines = ok(run("instance", "dependency", "process", "counting", TIME)).splitlines()
    assert lines[1] == f"Input\tfeed\tclicks\tprimary\t{day}\tclicks"
    tree = ok(run("instance", "triage", "process", "counting", TIME)).splitlines()
    assert tree[1:] == [f"  FEED:clicks:primary:{day} [MISSING] (24 instances)"]


def test_why_of_a_feed_and_of_nothing(project: Path) -> None:
    text = ok(run("why", "clicks", "2013-11-03-05:00"))
    assert f"file://{project}/data/clicks/2013-11-03/05 yet: the next one does" in text
    unknown = must("why", "klicks", TIME, code=1)
    assert "there is no feed or process 'klicks'. Did you mean 'clicks'" in unknown.stderr


def test_what_has_an_error_in_its_file_is_told_with_the_error(project: Path) -> None:
    file = project / "entities/all.yaml"
    text = file.read_text("utf-8")
    assert "name: clicks\n" in text
    file.write_text(text.replace("name: clicks\n", "name: clicks\nfrequncy: hours(1)\n"), "utf-8")
    for arguments in (("why", "clicks", TIME), ("instance", "listing", "clicks"), ("entity", "status", "clicks")):
        result = run(*arguments)
        assert (result.exit_code, "feed 'clicks': 'frequncy' is not a key" in result.stderr) == (1, True), arguments
        assert "there is no" not in result.stderr
    assert "process 'counting': " in run("why", "counting", TIME).stderr
    assert "Declare an entity 'zz'." in run("entity", "status", "zz").stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("why", "counts", TIME), 0),
        (("quality", "show", "counts"), 1),
        (("retention", "plan", "--dry-run"), 0),
        (("instance", "list", "process", "counting"), 1),
    ],
)
def test_what_is_left_out_because_of_errors_is_named_with_its_file(
    project: Path, arguments: tuple[str, ...], code: int
) -> None:
    file = project / "entities/all.yaml"
    file.write_text(file.read_text().replace("name: clicks\n", "name: clicks\nfrequncy: hours(1)\n"))
    told = "left out because of errors, with all that needs it: entities/all.yaml:"
    result = must(*arguments, code=code)
    assert told in result.stderr
    assert ": feed 'clicks'. Correct them first.\n" in result.stderr
