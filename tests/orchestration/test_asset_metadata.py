"""What an asset tells: the feed and the process that makes it, with links to what they are written in."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from examples.flights.place import Demo
from feed_assets import FeedAssetsTranslator, FeedAssetsTranslatorData, build_definitions
from feed_assets.clock import SystemClock
from feed_assets.orchestration.graph.code_references import find_pointer, find_remote
from feed_assets.orchestration.graph.metadata import column_schema
from feed_assets.scaffolding.projects import make_project
from feed_assets.settings import Settings, load_settings
from tests.documents.markdown import ROOT
from tests.orchestration.test_definitions import built, cluster, feed, output, process, window

ENTITIES = """\
kind: cluster
name: here
storage: memory://shop
---
kind: feed
name: a
frequency: days(1)
locations: {data: "/a/${YEAR}/${MONTH}/${DAY}"}
clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}
---
kind: feed
name: b
frequency: days(1)
locations: {data: "/b/${YEAR}/${MONTH}/${DAY}"}
clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}
---
kind: process
name: p
frequency: days(1)
clusters: {here: {validity: {start: 2026-01-01T00:00Z}}}
inputs: {a: {feed: a, start: "today(0,0)", end: "today(0,0)"}}
outputs: {b: {feed: b, instance: "today(0,0)"}}
workflow: {engine: python, path: "jobs.py:clean"}
"""


def node_of(definitions: dg.Definitions, *key: str) -> dg.AssetSpec:
    return definitions.resolve_asset_graph().get(dg.AssetKey(key)).to_asset_spec()


def lay_project(folder: Path) -> None:
    (folder / "entities").mkdir(parents=True)
    (folder / "entities" / "all.yaml").write_text(ENTITIES)
    (folder / "jobs.py").write_text("raise RuntimeError('imported')\n\n\ndef clean(a):\n    return a\n")


def lay_checkout(folder: Path, url: str, head: str = "ref: refs/heads/main\n", packed: str = "") -> None:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text(head)
    (folder / ".git" / "config").write_text(f'[core]\n\tbare = false\n[remote "origin"]\n\turl = {url}\n')
    (folder / ".git" / "packed-refs").write_text(packed)


def references_of(folder: Path) -> list[tuple[str, str]]:
    definitions = build_definitions(settings=load_settings(environ={}, start=folder))
    found = node_of(definitions, "here", "b").metadata["dagster/code_references"]
    return [(each.label, each.source) for each in found.code_references]


def test_an_asset_links_to_the_lines_of_its_feed_its_process_and_its_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_project(tmp_path)
    monkeypatch.chdir(tmp_path)  # names of files become relative to it
    assert references_of(tmp_path) == [
        ("feed b", f"{tmp_path}/entities/all.yaml:11"),
        ("process p", f"{tmp_path}/entities/all.yaml:17"),
        ("jobs.py:clean", f"{tmp_path}/jobs.py:4"),
    ]


def test_bd_32_an_asset_shows_the_steps_of_its_process_as_they_run_and_links_to_each(tmp_path: Path) -> None:
    lay_project(tmp_path)
    steps = "{clean: {engine: sql, path: clean.sql, after: [read], recoverable: false}, read: {path: 'jobs.py:clean'}}"
    work = 'workflow: {engine: python, path: "jobs.py:clean"}'
    (tmp_path / "entities" / "all.yaml").write_text(ENTITIES.replace(work, f"workflow: {{steps: {steps}}}"))
    (tmp_path / "clean.sql").write_text("SELECT 1")
    node = node_of(build_definitions(settings=load_settings(environ={}, start=tmp_path)), "here", "b")
    assert {"spark", "steps"} <= node.kinds
    assert "Made by **p** (`steps read, clean`)" in (node.description or "")
    assert (
        "| | step | work | after |\n|---|---|---|---|\n| 1 | read | python `jobs.py:clean` | – |\n"
        "| 2 | clean | sql `clean.sql`, not recoverable | read |"
    ) in (node.description or "")
    assert [label for label, _ in references_of(tmp_path)][2:] == ["clean.sql", "jobs.py:clean"]


def test_a_checkout_with_a_remote_adds_its_pages(tmp_path: Path) -> None:
    lay_checkout(tmp_path, "git@github.com:team/feeds.git", packed="12ab refs/remotes/origin/main\n")
    lay_project(tmp_path / "our project")
    pages = [url for _, url in references_of(tmp_path / "our project") if url.startswith("https://")]
    assert pages == [
        "https://github.com/team/feeds/blob/main/our%20project/entities/all.yaml#L11",
        "https://github.com/team/feeds/blob/main/our%20project/entities/all.yaml#L17",
        "https://github.com/team/feeds/blob/main/our%20project/jobs.py#L4",
    ]


@pytest.mark.parametrize(
    ("url", "head", "pages"),
    [
        (
            "https://me:secret@gitlab.firm.org:8443/a/b.git",
            "ref: refs/heads/x",
            "https://gitlab.firm.org:8443/a/b/-/blob/HEAD",
        ),
        ("ssh://git@github.com:22/team/feeds", "12ab34", "https://github.com/team/feeds/blob/12ab34"),
        ("https://example.org/team/feeds", "ref: refs/heads/main", None),
        ("/srv/git/github/feeds.git", "ref: refs/heads/main", None),
    ],
)
def test_pages_are_those_of_a_known_platform_and_a_revision_that_it_has(
    tmp_path: Path, url: str, head: str, pages: str | None
) -> None:
    lay_checkout(tmp_path, url, head)
    found = find_remote(tmp_path)
    assert (found and found.pages) == pages


def test_a_remote_is_what_git_fetches_from(tmp_path: Path) -> None:
    lay_checkout(
        tmp_path, "git@github.com:team/feeds.git ; ours\n\turl = git@github.com:mirror/feeds.git\n[alias]\n\t= x"
    )
    found = find_remote(tmp_path)
    assert found is not None
    assert found.pages == "https://github.com/team/feeds/blob/HEAD"


def test_a_worktree_has_the_remote_of_its_repository(tmp_path: Path) -> None:
    lay_checkout(tmp_path / "main", "git@github.com:team/feeds.git")
    own = tmp_path / "main" / ".git" / "worktrees" / "one"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("12ab34\n")
    (own / "commondir").write_text("../..\n")
    (tmp_path / "one" / "entities").mkdir(parents=True)
    (tmp_path / "one" / ".git").write_text(f"gitdir: {os.path.relpath(own, tmp_path / 'one')}\n")
    found = find_remote(tmp_path / "one" / "entities")
    assert found is not None
    assert found.url(tmp_path / "one" / "entities" / "a.yaml", 3) == (
        "https://github.com/team/feeds/blob/12ab34/entities/a.yaml#L3"
    )


def test_nothing_of_a_process_is_lost_in_its_feed() -> None:
    made = process(
        "p",
        {**window("a", "today(-24,0)", "today(0,0)"), **window("c", "today(0,0)", "today(0,0)", optional=True)},
        output("b"),
        description="Cleans.",
        tags={"owner": "platform", "tier": "2", "level": "gold"},
        acl={"owner": "platform", "group": "etl"},
        pipelines=["nightly"],
    )
    described = feed(
        "b", description="Clean rows.", tags={"owner": "ops@firm.org", "level": "gold"}, acl={"owner": "ann@firm.org"}
    )
    spec = node_of(built(feed("a"), feed("c"), described, made), "here", "b")
    assert spec.owners == ["team:platform", "team:etl"]
    assert {name: value for name, value in spec.tags.items() if not name.startswith("dagster/")} == {
        "owner": "ops_firm.org",
        "process/owner": "platform",
        "level": "gold",
        "tier": "2",
    }
    assert spec.description == (
        "Clean rows.\n\n"
        "Made by **p** (`python jobs:run`): Cleans.\n\n"
        "| input | feed | window |\n|---|---|---|\n"
        "| a | a | `today(-24,0)` to `today(0,0)` |\n"
        "| c (optional) | c | `today(0,0)` to `today(0,0)` |\n\n"
        "- **Location**: `memory://shop/b/${YEAR}/${MONTH}/${DAY}`, csv\n"
        "- **Instances**: days(1) in UTC, from 2026-01-01T00:00Z to 2026-03-01T00:00Z\n"
        "- **Pipelines**: nightly\n\n"
        "```sh\n"
        "feed-assets why b 2026-01-08 --cluster here --kind feed\n"
        "dagster asset materialize -f definitions.py --select 'key:\"here/b\"' --partition 2026-01-08\n"
        "```"
    )


@pytest.mark.parametrize(
    ("file", "content", "pointer"),
    [
        ("definitions.py", "", "-f definitions.py"),
        ("pyproject.toml", '[tool.dagster]\nmodule_name = "shop.defs"', "-m shop.defs"),
        ("pyproject.toml", '[tool.dg.project]\nroot_module = "shop"', "-m shop.definitions"),
        ("pyproject.toml", "[project]", None),
        ("pyproject.toml", "[", None),
        ("other.py", "", None),
    ],
)
def test_commands_of_dagster_name_the_definitions_of_the_project(
    tmp_path: Path, file: str, content: str, pointer: str | None
) -> None:
    (tmp_path / file).write_text(content)
    assert find_pointer(tmp_path) == pointer


def test_columns_have_the_types_of_spark_and_the_comments_of_the_declaration() -> None:
    declared = "id long COMMENT 'Of the order', `to pay` decimal(10,2) NOT NULL"
    shown = node_of(built(feed("a", schema=declared)), "here", "a").metadata["dagster/column_schema"]
    written = column_schema([("id", "bigint"), ("note", "string")], declared)
    assert [[(each.name, each.type, each.description) for each in schema.columns] for schema in (shown, written)] == [
        [("id", "bigint", "Of the order"), ("to pay", "decimal(10,2) NOT NULL", None)],
        [("id", "bigint", "Of the order"), ("note", "string", None)],
    ]


def test_a_description_says_which_day_a_partition_of_another_zone_is() -> None:
    start = {"here": {"validity": {"start": "2026-10-24T22:00Z"}}}
    described = node_of(built(feed("a", timezone="Europe/Berlin", clusters=start)), "here", "a").description or ""
    assert "from 2026-10-24T22:00Z; the partition `2026-10-25` begins at 2026-10-24T22:00Z\n" in described


def test_ops_have_readable_names_and_a_suffix_only_where_two_collide() -> None:
    one = built(feed("a"), feed("b"), process("a-b", window("a", "today(0,0)", "today(0,0)"), output("b")))
    assert {each.op.name for each in one.assets or () if isinstance(each, dg.AssetsDefinition)} == {"here__a_b"}
    several = [process(name, {}, output(name)) for name in ("a-b", "a--b", "c")]
    plan_of = built(*(feed(each.name) for each in several), *several)
    found = {each.op.name for each in plan_of.assets or () if isinstance(each, dg.AssetsDefinition)}
    assert len(found) == 3
    assert {name for name in found if name.startswith("here__a_b_")} == found - {"here__c"}


class LakeTranslator(FeedAssetsTranslator):
    def get_asset_spec(self, data: FeedAssetsTranslatorData) -> dg.AssetSpec:
        spec = super().get_asset_spec(data)
        return spec.replace_attributes(key=spec.key.with_prefix("lake"))


def test_the_command_of_a_description_has_the_key_that_a_translator_gives() -> None:
    entities = [cluster(), feed("a"), feed("b"), process("p", window("a", "today(0,0)", "today(0,0)"), output("b"))]
    made = build_definitions(entities, settings=load_settings(environ={}), translator=LakeTranslator())
    assert "--select 'key:\"lake/here/b\"'" in (node_of(made, "lake", "here", "b").description or "")


def new_project(folder: Path) -> Settings:
    make_project(folder, datetime(2026, 1, 4, tzinfo=UTC))
    return load_settings(environ={}, start=folder)


def demo(folder: Path) -> Settings:
    place = Demo(folder=folder, port=0, seconds=1, s3="http://127.0.0.1:1")
    return load_settings(environ=place.environment(SystemClock().now()), start=ROOT)


@pytest.mark.parametrize(("settings_of", "count"), [(new_project, 4), (demo, 11)])
def test_every_link_leads_to_the_lines_that_it_names(
    tmp_path: Path, settings_of: Callable[[Path], Settings], count: int
) -> None:
    graph = build_definitions(settings=settings_of(tmp_path / "shop")).resolve_asset_graph()
    links = {
        (each.label, each.file_path, each.line_number)
        for node in graph.asset_nodes
        for each in getattr(node.metadata.get("dagster/code_references"), "code_references", ())
        if isinstance(each, dg.LocalFileCodeReference)
    }
    assert len(links) == count
    for label, file, line in links:
        kind, _, name = (label or "").partition(" ")
        lines = Path(file).read_text("utf-8").splitlines()[(line or 1) - 1 :]
        if name:
            assert lines[:2] == [f"kind: {kind}", f"name: {name}"]
        elif line is None:
            assert file.endswith(kind)
        else:
            assert lines[0].startswith(f"def {kind.rpartition(':')[2]}(")
