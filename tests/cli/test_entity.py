import json
from pathlib import Path

import pytest
import yaml

from feed_assets.log.definitions.records import Member, Release
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.releases.store import Releases
from feed_assets.sql.database import open_database
from feed_assets.timing.dates import parse_datetime
from tests.cli.project import below, must, rows, run, shown
from tests.definitions.verbs.harness import COUNTING, changed
from tests.instances.harness import at
from tests.log.samples import process_instance
from tests.projects import be


def write(submitted: Path, **fields: object) -> str:
    """A file with the process, changed."""
    (submitted / "new.yaml").write_text(yaml.safe_dump(changed(COUNTING, **fields), sort_keys=False))
    return "new.yaml"


def test_submit_prints_what_became_of_each_entity(prepared: Path) -> None:
    result = must("entity", "submit", "all.yaml")
    assert result.stdout.splitlines() == [
        "cluster 'primary': submitted, version 1",
        "feed 'clicks': submitted, version 1",
        "feed 'counts': submitted, version 1",
        "process 'counting': submitted, version 1",
        "process 'counting' on primary: release 1, begins",
    ]
    assert run("entity", "submit", "all.yaml").stdout.splitlines()[3] == "process 'counting': unchanged, version 1"


def test_what_only_the_files_say_so_far_is_told(prepared: Path) -> None:
    (prepared / "all.yaml").rename(prepared / "entities/all.yaml")
    told = "  the files say so already, and the next tick or `apply` records it"
    for verb in ("submit", "update"):
        said = must("entity", verb, "entities/all.yaml").stdout.splitlines()
        assert said[2:4] == ["feed 'clicks': unchanged", told]
    must("entity", "history", "feed", "clicks")
    assert told not in must("entity", "update", "entities/all.yaml").stdout


def test_a_refusal_ends_with_1_and_one_message_on_standard_error(submitted: Path) -> None:
    result = run("entity", "submit", write(submitted, parallel=2))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(
        "feed-assets: process 'counting': it is already declared, with a different content, in "
    )
    assert run("entity", "delete", "feed", "clicks").exit_code == 1
    assert run("entity", "status", "feed", "nothing").exit_code == 1


def test_from_submit_to_delete(submitted: Path) -> None:
    assert run("entity", "schedule", "process", "counting").stdout == (
        "process 'counting': scheduled (primary SCHEDULED)\n"
    )
    assert run("entity", "suspend", "process", "counting").stdout == (
        "process 'counting': suspended (primary SUSPENDED)\n"
    )
    assert run("entity", "status", "process", "counting").stdout == "SUSPENDED\ncluster\tstatus\nprimary\tSUSPENDED\n"
    assert run("entity", "resume", "process", "counting").exit_code == 0
    dry = run("entity", "update", write(submitted, tags={"owner": "bob"}), "--dry-run")
    assert dry.stdout.splitlines() == ["process 'counting': would be updated", '  tags.owner: (nothing) -> "bob"']
    updated = run("entity", "update", "new.yaml", "--author", "bob", "--output", "json")
    document = json.loads(updated.stdout)
    assert (document["is_change"], document["outcomes"][0]["version"]) == (True, 2)
    assert run("entity", "touch", "process", "counting").exit_code == 0
    history = rows(run("entity", "history", "process", "counting").stdout)
    assert [(row[0], row[1], row[3], row[4]) for row in history] == [
        ("1", "SUBMITTED", "ann", "submit"),
        ("2", "UPDATED", "bob", "update"),
    ]
    assert history[1][5] == "1 field"
    assert rows(run("entity", "blame", "process", "counting", "tags").stdout)[0][:4] == [
        "tags.owner",
        '"bob"',
        "2",
        "bob",
    ]
    assert run("entity", "verify-store").exit_code == 0
    deleted = run("entity", "delete", "process", "counting")
    assert deleted.stdout == "process 'counting': deleted, version 3\n"
    assert run("entity", "delete", "process", "counting").stdout == (
        "process 'counting': missing\n  it is not declared: nothing to do\n"
    )


def test_reading_commands_print_lines_with_tabs_or_json(submitted: Path) -> None:
    listed = run("entity", "list", "--kind", "feed", "--fields", "CLUSTERS", "--num-results", "1")
    assert (listed.stdout, listed.stderr) == (
        "kind\tname\tclusters\nfeed\tclicks\tprimary\n",
        "1 of 2 entities; --num-results and --offset show more\n",
    )
    assert shown("entity", "list")["total"] == 4
    looked = run("entity", "lookup", "/clicks/2013-11-02/05")
    assert below(looked.stdout) == "clicks\tprimary\tdata\t2013-11-02T05:00Z\n"
    assert run("entity", "lookup", "/clicks").stderr == "No feed has this path.\n"
    definition = run("entity", "definition", "feed", "clicks", "--format", "json")
    assert json.loads(definition.stdout)["name"] == "clicks"
    summary = run("entity", "summary", "feed", "--cluster", "primary", "--end", "2013-11-02T02:00Z", "--num-results=1")
    assert below(summary.stdout).splitlines()[0] == "clicks\tSUBMITTED\t2013-11-02T01:00Z\tMISSING"


def test_a_webserver_that_does_not_answer_is_a_warning(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_ASSETS_WEBSERVER", "http://127.0.0.1:1")
    result = run("entity", "submit", "all.yaml")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: webserver http://127.0.0.1:1: it does not answer: ")


def test_without_a_place_for_the_state_the_places_that_were_tried_are_named(prepared: Path) -> None:
    (prepared / "feed_assets.yaml").write_text("")
    result = run("entity", "list")
    assert result.exit_code == 2
    assert "setting 'state': the location of the state is not configured." in result.stderr
    assert "Tried in this order: the command line" in result.stderr


def test_the_author_is_the_user_of_the_system_if_nobody_says_otherwise(
    prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEED_ASSETS_AUTHOR")
    be("joe", monkeypatch)
    run("entity", "submit", "all.yaml")
    assert shown("admin", "audit")["audit"][0]["author"] == "joe"


def test_runs_that_could_not_be_ended_are_named(submitted: Path) -> None:
    database = open_database(f"sqlite:///{submitted}/state.db")
    running = ProcessInstanceStatus.RUNNING
    row = process_instance(process="counting", nominal_time=at("02"), status=running, run_id="run-7")
    with database.begin() as connection:
        ProcessInstances(connection).add_waiting([row])
    result = must("entity", "delete", "process", "counting", code=1)
    assert result.stdout.splitlines()[0] == "process 'counting': deleted, version 2"
    assert "the instances are killed, but their runs go on (run-7): " in result.stderr
    with database.read() as connection:
        assert ProcessInstances(connection).get(*row.key).status is ProcessInstanceStatus.KILLED  # type: ignore[union-attr]


def test_a_clone_is_declared_beside_the_old_entity_with_what_is_replaced(submitted: Path) -> None:
    (submitted / "entities" / "feed" / "clicks.yaml").rename(submitted / "entities" / "ours.yaml")
    clone = ("entity", "clone", "feed", "clicks", "taps", "--replace", "/clicks/=/taps/")
    assert run(*clone, "--dry-run").stdout == "feed 'taps': would be submitted\n"
    assert run(*clone).stdout.splitlines()[0] == "feed 'taps': submitted, version 1"
    assert "/taps/" in (submitted / "entities" / "taps.yaml").read_text()
    assert run(*clone).stdout == "feed 'taps': unchanged, version 1\n"
    other = run("entity", "clone", "feed", "clicks", "counts")
    assert (other.exit_code, other.stderr.partition(", in ")[0]) == (
        1,
        "feed-assets: feed 'counts': it is already declared, with a different content",
    )
    assert other.stderr.endswith("Choose another name.\n")


def test_a_clone_that_would_share_what_one_entity_has_says_what_to_replace(submitted: Path) -> None:
    refused = run("entity", "clone", "process", "counting", "again")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "with --replace /counting/=/again/" in refused.stderr
    assert "writes the same instances of feed 'counts'" in refused.stderr
    assert not (submitted / "entities" / "process" / "again.yaml").exists()


def _release(declared: Path, process: str) -> None:
    must("entity", "history", "cluster", "primary")  # records what the folder says
    release = Release(
        process=process,
        cluster="primary",
        release=1,
        effective_from=parse_datetime("2024-01-01T00:00Z"),
        fingerprint="",
        members=(Member(kind="cluster", name="primary", version=1), Member(kind="process", name=process, version=1)),
        recorded_at=parse_datetime("2024-01-01T00:00Z"),
        reason="a test",
    )
    with open_database(f"sqlite:///{declared}/state.db").begin() as connection:
        Releases(connection).put([release])


def test_an_instance_leads_to_the_definitions_that_govern_it(declared: Path) -> None:
    _release(declared, "counting")
    found = must("entity", "governing", "counting", "2024-01-02T00:00Z", "--cluster", "primary")
    lines = found.stdout.splitlines()
    assert lines[0] == "release 1 from 2024-01-01T00:00Z on: a test"
    assert [line.split("\t")[:3] for line in lines[2:]] == [["process", "counting", "1"], ["cluster", "primary", "1"]]


def test_an_instance_before_the_first_release_has_nothing_that_governs_it(declared: Path) -> None:
    _release(declared, "counting")
    found = run("entity", "governing", "counting", "2023-12-31T00:00Z", "--cluster", "primary")
    assert (found.exit_code, below(found.stdout)) == (0, "")
    assert "No release of 'counting' on 'primary' is in effect at 2023-12-31T00:00Z." in found.stderr


def test_the_only_cluster_of_the_process_need_not_be_named(declared: Path) -> None:
    other = "---\nkind: cluster\nname: other\nstorage: file://${PROJECT_ROOT}/other\n"
    (declared / "entities/other.yaml").write_text(other)
    _release(declared, "counting")
    found = must("entity", "governing", "counting", "2024-01-02T00:00Z")
    assert found.stdout.splitlines()[0] == "release 1 from 2024-01-01T00:00Z on: a test"
    unknown = run("entity", "governing", "gone", "2024-01-02T00:00Z")
    assert "Name one of the clusters other, primary with --cluster." in unknown.stderr
