"""The commands that refusals of definitions offer, pasted where they were read."""

from pathlib import Path

import pytest
import yaml

from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.releases.errors import ReleaseError
from tests.cli.pasting import (
    TIME,
    Pasting,
    begin,
    counted,
    declare,
    expired,
    of,
    paste,
    replicated,
    schedule_by_hand,
)
from tests.cli.project import ok, refused, run
from tests.definitions.verbs.harness import CLICKS, CLUSTER, COUNTING, COUNTS

__all__ = ["counted", "expired", "paste", "replicated"]


@of(
    "explain.explanations.<module>: admin safemode",
    "context.safe_mode.require_mode: admin safemode",
)
def test_safe_mode_is_switched_off_and_on(counted: Path, paste: Pasting) -> None:
    ok(run("admin", "safemode", "on"))
    paste(ok(run("why", "counting", TIME)), "admin safemode off")
    assert "safe mode" not in ok(run("why", "counting", TIME))
    ok(run("admin", "safemode", "on"))
    paste(refused(run("entity", "schedule", "process", "counting")), "admin safemode off")
    (counted / "cluster.yaml").write_text(yaml.safe_dump({**CLUSTER, "storage": f"file://{counted}/elsewhere"}))
    (counted / "elsewhere").mkdir()
    paste(refused(run("entity", "update", "cluster.yaml")), "admin safemode on")
    ok(run("entity", "update", "cluster.yaml"))


@of("context.errors.VersionNotFoundError.__init__: entity history")
def test_an_unknown_version_leads_to_the_history(counted: Path, paste: Pasting) -> None:
    ok(run("apply", "--yes"))
    said = refused(run("entity", "blame", "process", "counting", "colour"))
    assert "SUBMITTED" in paste(said, "entity history process counting").stdout


@of("definitions.lists.reading.show_definition: entity history")
def test_an_unknown_definition_leads_to_the_history(counted: Path, paste: Pasting) -> None:
    said = refused(run("entity", "definition", "process", "counting", "--version", "9"))
    assert "SUBMITTED" in paste(said, "entity history process counting").stdout


@of("context.errors.EntityExistsError.__init__: apply")
def test_what_is_declared_differently_is_changed(counted: Path, paste: Pasting) -> None:
    ok(run("apply", "--yes"))
    file = counted / "it's new.yaml"
    file.write_text(yaml.safe_dump({**COUNTING, "parallel": 7}))
    paste(refused(run("entity", "submit", str(file))), "apply")
    assert "parallel: 7" in ok(run("entity", "definition", "process", "counting"))


@of("context.errors.NotScheduledError.__init__: entity schedule")
def test_what_cannot_be_suspended_is_scheduled_first(counted: Path, paste: Pasting) -> None:
    schedule_by_hand(counted)
    paste(refused(run("entity", "suspend", "process", "counting")), "entity schedule process counting")
    ok(run("entity", "suspend", "process", "counting"))


@of(
    "context.errors.FolderNotEmptyError.__init__: init",
    "scaffolding.projects.NewProject.text: validate",
)
def test_a_folder_that_is_not_empty_gets_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paste: Pasting
) -> None:
    folder = tmp_path / "web shop & more"
    folder.mkdir()
    (folder / "README.md").write_text("mine")
    made = paste(refused(run("init", str(folder), "--name", "shop")), "init").stdout
    assert (folder / "README.md").read_text() == "mine"
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    paste(made, "validate")


@of("releases.errors.ReleaseError.__init__: entity definition")
def test_a_release_that_cannot_be_made_leads_to_the_declaration(counted: Path, paste: Pasting) -> None:
    said = str(ReleaseError(process="counting", cluster="primary", reason="its validity has no instance left"))
    assert "name: counting" in paste(said, "entity definition process counting").stdout


@of("definitions.errors.MassDeletionError.__init__: apply")
def test_a_mass_deletion_is_confirmed(counted: Path, paste: Pasting) -> None:
    ok(run("apply", "--yes"))
    declare(counted, CLUSTER)
    paste(refused(run("apply", "--yes")), "apply --delete-all")
    assert "DELETED" in ok(run("entity", "history", "process", "counting"))


@of("definitions.errors.RenamedInFilesError.__init__: apply", "definitions.errors.rename_hint: entity rename")
def test_a_name_that_was_edited_in_a_file_is_a_renaming_or_confirmed(counted: Path, paste: Pasting) -> None:
    ok(run("apply", "--yes"))
    history = ("entity", "history", "process")
    declare(counted, CLUSTER, CLICKS, COUNTS, {**COUNTING, "name": "tallying"})
    paste(refused(run(*history, "tallying")), "entity rename")
    assert "rename of counting" in ok(run(*history, "tallying"))
    declare(counted, CLUSTER, CLICKS, COUNTS, {**COUNTING, "name": "adding"})
    paste(refused(run(*history, "adding")), "apply")
    assert "DELETED" in ok(run(*history, "tallying"))


@of("definitions.verbs.renaming._require_rest: instance kill")
def test_a_run_that_keeps_a_name_is_ended(counted: Path, paste: Pasting) -> None:
    ok(run("apply", "--yes"))
    begin(counted, ProcessInstanceStatus.RUNNING)
    paste(refused(run("entity", "rename", "clicks", "taps")), "instance kill")
    ok(run("entity", "rename", "clicks", "taps"))


@of(
    "definitions.errors.ForeignDefinitionsError.__init__: apply",
    "definitions.errors.ReplacedDefinitionsError.__init__: apply",
)
def test_another_project_takes_a_database_over(
    counted: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, paste: Pasting
) -> None:
    ok(run("apply", "--yes"))
    other = tmp_path_factory.mktemp("other")
    (other / "entities").mkdir()
    (other / "feed_assets.yaml").write_text(f"state: sqlite:///{counted}/state.db\n")
    declare(other, CLUSTER, {**CLICKS, "name": "others"})
    monkeypatch.chdir(other)
    paste(refused(run("entity", "list")), "apply --delete-all")
    monkeypatch.chdir(counted)
    paste(refused(run("entity", "history", "feed", "clicks")), "apply")
    ok(run("entity", "history", "feed", "clicks"))


@of("retention.holding.release_hold: hold list")
def test_an_unknown_hold_leads_to_the_list(expired: Path, paste: Pasting) -> None:
    ok(run("hold", "add", "audit", "--feed", "clicks", "--reason", "numbers"))
    assert "audit" in paste(refused(run("hold", "release", "other")), "hold list").stdout


@of("server.identity.tokens.create_token: token revoke", "server.identity.tokens.revoke_token: token list")
def test_a_token_in_the_way_is_revoked_and_an_unknown_one_leads_to_the_list(expired: Path, paste: Pasting) -> None:
    make = ("token", "create", "loader", "--may", "reads")
    ok(run(*make))
    paste(refused(run(*make)), "token revoke loader")
    ok(run(*make))
    assert "loader" in paste(refused(run("token", "revoke", "other")), "token list").stdout


@of("server.serving.require_safe: token create")
def test_a_server_for_other_machines_needs_a_token(expired: Path, paste: Pasting) -> None:
    serve = ("serve", "--host", "0.0.0.0")
    paste(refused(run(*serve)), "token create")
    assert "plain text" in refused(run(*serve))


@of("definitions.verbs.planning._find_holds: hold release")
def test_the_hold_of_a_feed_that_goes_is_released(expired: Path, paste: Pasting) -> None:
    ok(run("apply", "--yes"))
    ok(run("hold", "add", "audit", "--feed", "views", "--reason", "numbers"))
    (feed,) = [
        each for each in yaml.safe_load_all((expired / "entities/all.yaml").read_text()) if each["name"] == "clicks"
    ]
    declare(expired, CLUSTER, feed)
    paste(run("plan").output, "hold release audit")
    assert "audit" not in ok(run("hold", "list"))


@of("definitions.verbs.planning.require_digest: plan")
def test_a_digest_that_is_too_short_leads_to_the_plan(counted: Path, paste: Pasting) -> None:
    assert "Plan " in paste(refused(run("apply", "--digest", "4f0")), "plan").stdout


@of("definitions.falcon.importing.ImportReport.summary: validate")
def test_what_was_imported_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paste: Pasting) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "feed_assets.yaml").write_text("entities: entities\n")
    primary = Path(__file__).parents[1] / "loading/falcon/documents/primary.xml"
    done = run("import-falcon", str(primary), "--to", "my entities")
    paste(done.stderr, "validate")
