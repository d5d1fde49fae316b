"""The commands that refusals of extensions and their jobs offer, pasted where they were read."""

from pathlib import Path

import pytest
import yaml

from tests.cli.pasting import Pasting, counted, of, paste
from tests.cli.project import ok, refused, run
from tests.definitions.extensions.samples import FEEDS, TABLES, files_of, lay
from tests.definitions.verbs.harness import CLUSTER

__all__ = ["counted", "paste"]

JOB = "entities/extension-jobs/nightly.yaml"


@pytest.fixture
def submitted(counted: Path) -> Path:
    """A project with a job."""
    ok(run("apply", "--yes"))
    (counted / "empty.sql").write_text("select 1")
    lay(counted / "recipe", files_of())
    (counted / "tables.yaml").write_text(yaml.safe_dump({"tables": TABLES}))
    ok(run("extension", "register", "recipe"))
    ok(run("extension", "job", "submit", "shop-tables", "nightly", "--file", "tables.yaml"))
    return counted


@of(
    "context.errors.JobOwnedError.__init__: extension job update",
    "loading.job_files.refuse_edited: extension job update",
    "definitions.extensions.jobs.submit_job: extension job update",
    "definitions.extensions.jobs.change_job: extension job schedule",
    "definitions.extensions.jobs._find_enabled: extension enable",
    "definitions.extensions.registry._result: extension job update",
    "definitions.extensions.registry.unregister_extension: extension job delete",
)
def test_a_job_is_changed_by_its_own_commands(submitted: Path, paste: Pasting) -> None:
    paste(refused(run("entity", "delete", "feed", "nightly-orders")), "extension job update")
    paste(refused(run("extension", "job", "suspend", "nightly")), "extension job schedule")
    file = submitted / JOB
    file.write_text(file.read_text().replace("csv", "json"))
    paste(run("validate").stdout, "extension job update")
    ok(run("validate"))
    other = ("extension", "job", "submit", "shop-tables", "nightly", "--parameter", "tables=[]")
    paste(refused(run(*other)), "extension job update")
    ok(run("extension", "disable", "shop-tables"))
    paste(refused(run("extension", "job", "update", "nightly")), "extension enable")
    lay(submitted / "recipe", files_of(feeds=FEEDS.replace("csv", "json")))
    assert "updated" in paste(ok(run("extension", "register", "recipe")), "extension job update").stdout
    paste(refused(run("extension", "unregister", "shop-tables")), "extension job delete")
    ok(run("extension", "unregister", "shop-tables"))


@of("definitions.verbs.changes.update_cluster_dependents: extension job update")
def test_a_job_follows_its_cluster_by_an_update(submitted: Path, paste: Pasting) -> None:
    ok(run("admin", "safemode", "on"))
    (submitted / "cluster.yaml").write_text(yaml.safe_dump({**CLUSTER, "properties": {"a": "b"}}))
    ok(run("entity", "update", "cluster.yaml"))
    ok(run("admin", "safemode", "off"))
    paste(ok(run("entity", "update-cluster-dependents", "primary")), "extension job update")
    assert "version: 1" in (submitted / JOB).read_text()
