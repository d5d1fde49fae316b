"""Mirrors written down: what people give, and what Falcon's extensions for mirroring were given."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from feed_assets.context.errors import NewEntityError
from feed_assets.definitions.templates import Template
from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.copies.mirror import Mirror
from feed_assets.entities.errors import DefinitionsError
from feed_assets.entities.process import Process
from feed_assets.loading.bundles import load_files
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.replication.mirrors.queries import MirrorRequest
from feed_assets.replication.mirrors.templates import COMMENTS, KNOWN, make_mirror, read_properties
from feed_assets.timing.sequence import parse_frequency

AS_OF = datetime(2015, 6, 1, 14, 30, tzinfo=UTC)
DECLARED = Bundle(entities=tuple(Cluster(name=name, storage=f"file:///{name}") for name in ("east", "west")))
PLAIN = MirrorRequest(name="models", sources=("east:/models",), target="west:/models")


def make(mirror: MirrorRequest = PLAIN, **more: Any) -> Template:
    return make_mirror(mirror, DECLARED, AS_OF, **more)


def load(text: str) -> Process:
    """The process that a text declares."""
    loaded = load_files([EntityFile(name="a.yaml", content=text.encode())], Values(variables={}, environ={}))
    assert [issue.render() for issue in loaded.issues] == []
    (process,) = loaded.bundle.processes
    return process


def mirror_of(process: Process) -> Mirror:
    assert process.workflow.mirror is not None
    return process.workflow.mirror


def test_the_text_is_the_definition() -> None:
    template = make()
    assert load(template.text) == template.entity
    mirror = mirror_of(template.entity)
    assert list(mirror.directories()) == [("/models", "/models")]
    assert mirror.clusters("none") == ("east", "west")
    assert list(template.entity.clusters) == ["west"]
    assert template.entity.clusters["west"].validity.start == datetime(2015, 6, 1, tzinfo=UTC)


def test_every_option_has_a_comment_and_holds_when_it_is_uncommented() -> None:
    assert set(COMMENTS) == set(Mirror.model_fields)
    text = make().text
    named = re.findall(r"^    (?:# )?([a-z_]+):", text.partition("  mirror:")[2], re.M)
    assert sorted(named) == sorted(Mirror.model_fields)
    for line in re.findall(r"^    # .*$", text, re.M):
        process = load(text.replace(line, line.replace("    # ", "    ", 1)))
        assert mirror_of(process) is not None


def test_sources_on_several_lines_stay_readable() -> None:
    mirror = MirrorRequest(name="m", sources=("east:/a", "/b"), target="west:/all", snapshots="2,5", cluster="east")
    template = make(mirror)
    assert load(template.text) == template.entity
    assert list(mirror_of(template.entity).directories()) == [("/a", "/all/a"), ("/b", "/all/b")]
    assert list(template.entity.clusters) == ["east"]


def test_a_start_has_no_seconds() -> None:
    """As `now-7d` has some."""
    template = make(replace(PLAIN, start=AS_OF.replace(second=5), end=AS_OF.replace(day=2, second=59)))
    validity = load(template.text).clusters["west"].validity
    assert (validity.start, validity.end) == (AS_OF, AS_OF.replace(day=2))


def test_falcons_properties_are_translated() -> None:
    properties = {
        "jobName": "models",
        "jobClusterName": "east",
        "jobValidityStart": "2015-01-01T00:00Z",
        "jobValidityEnd": "2016-01-01T00:00Z",
        "jobFrequency": "hours(6)",
        "jobTimezone": "Europe/Paris",
        "jobTags": "owner=me,kind=mirror",
        "jobRetryPolicy": "exp-backoff",
        "jobRetryDelay": "minutes(1)",
        "jobRetryAttempts": "2",
        "jobRetryOnTimeout": "true",
        "jobAclOwner": "me",
        "jobAclGroup": "us",
        "jobAclPermission": "rwxr-x---",
        "jobNotificationType": "email",
        "jobNotificationReceivers": "a@b.org, c@d.org",
        "sourceSnapshotDir": "/models",
        "sourceCluster": "east",
        "targetSnapshotDir": "/models",
        "targetCluster": "west",
        "distcpMaxMaps": "3",
        "distcpMapBandwidth": "10",
        "tdeEncryptionEnabled": "true",
        "overwrite": "true",
        "ignoreErrors": "true",
        "skipChecksum": "true",
        "removeDeletedFiles": "true",
        "preserveTimes": "true",
        "preservePermission": "true",
        "preserveUser": "true",
        "preserveAcl": "false",
        "preserveXattr": "true",
        "sourceSnapshotRetentionPolicy": "delete",
        "sourceSnapshotRetentionNumber": "4",
        "sourceSnapshotRetentionAgeLimit": "days(3)",
        "targetSnapshotRetentionNumber": "9",
        "targetSnapshotRetentionAgeLimit": "days(30)",
    }
    template = make(MirrorRequest(properties=properties))
    assert yaml.safe_load(template.text) == {
        "kind": "process",
        "name": "models",
        "tags": {"owner": "me", "kind": "mirror"},
        "acl": {"owner": "me", "group": "us", "permission": "rwxr-x---"},
        "clusters": {"east": {"validity": {"start": "2015-01-01T00:00Z", "end": "2016-01-01T00:00Z"}}},
        "order": "LAST_ONLY",
        "catch_up": "latest",
        "frequency": "hours(6)",
        "timezone": "Europe/Paris",
        "workflow": {
            "engine": "directory-mirror",
            "mirror": {
                "source": {"cluster": "east", "directory": "/models"},
                "target": {"cluster": "west", "directory": "/models"},
                "removed_files": "remove",
                "snapshots": {"source_keep": 4, "target_keep": 9, "source_age": "days(3)", "target_age": "days(30)"},
                "verification": "none",
                "overwrite": True,
                "ignore_errors": True,
                "preserve": ["owner", "permissions", "times"],
                "max_tasks": 3,
                "task_bandwidth": "10MB",
            },
        },
        "retry": {"policy": "exp-backoff", "delay": "minutes(1)", "attempts": 2, "on_timeout": True},
        "notification": {"to": ["a@b.org", "c@d.org"]},
    }
    assert template.notes == (
        "tdeEncryptionEnabled=true is left out: it has no meaning here",
        "preserveXattr=true is left out: it has no meaning here",
    )
    assert properties.keys() <= set(KNOWN)


def test_a_comma_list_of_directories_is_several_and_nobody_is_told_by_default() -> None:
    values, _ = read_properties({"sourceDir": "/a, /b", "jobNotificationReceivers": "NA"})
    assert values == {"workflow": {"mirror": {"source": {"directories": ["/a", "/b"]}}}}


def test_options_win_over_properties() -> None:
    properties = {"jobName": "old", "sourceDir": "/old", "targetDir": "/old", "jobFrequency": "hours(6)"}
    often = parse_frequency("days(2)")
    mirror = MirrorRequest(
        name="new", target="west:/new", frequency=often, cluster="east", removes=True, properties=properties
    )
    process = make(mirror).entity
    assert (process.name, process.frequency.render()) == ("new", "days(2)")
    assert list(mirror_of(process).directories()) == [("/old", "/new")]
    assert mirror_of(process).removes


@pytest.mark.parametrize(
    ("mirror", "message"),
    [
        (MirrorRequest(name="m", target="west:/b"), "it has no source. Give it with --source."),
        (MirrorRequest(name="m", sources=("east:/a",)), "it has no target. Give it with --target."),
        (MirrorRequest(name="m", sources=("/a",), target="/b"), "it has no cluster"),
        (MirrorRequest(name="m", sources=("east:/a", "west:/b"), target="/b"), "the sources are on two clusters"),
        (MirrorRequest(name="m", properties={"sourceDirs": "/a"}), "Did you mean 'sourceDir'?"),
    ],
)
def test_what_makes_no_mirror_is_named(mirror: MirrorRequest, message: str) -> None:
    with pytest.raises(NewEntityError, match=re.escape(message)):
        make(mirror)


def test_what_the_rules_refuse_is_not_written() -> None:
    with pytest.raises(DefinitionsError, match=r"is inside its source"):
        make(MirrorRequest(name="m", sources=("east:/a",), target="east:/a/b"))
    with pytest.raises(DefinitionsError, match=r"there is no cluster 'wst'. Did you mean 'west'"):
        make(MirrorRequest(name="m", sources=("east:/a",), target="wst:/a"))
    with pytest.raises(DefinitionsError, match=r"'\$name' is not a name"):
        make(MirrorRequest(name="$name", sources=("east:/a",), target="west:/a"))


def test_a_process_that_is_declared_is_replaced_only_if_that_is_asked_for() -> None:
    declared = Bundle(entities=(*DECLARED.entities, make().entity))
    with pytest.raises(NewEntityError, match="is already declared"):
        make_mirror(PLAIN, declared, AS_OF)
    assert make_mirror(PLAIN, declared, AS_OF, is_forced=True).entity == make().entity
