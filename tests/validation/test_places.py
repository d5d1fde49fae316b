"""Places that overlap are refused where something here writes one of them, however their URLs are written."""

from pathlib import Path
from typing import Any

import pytest

from feed_assets.issues import EntityKey, FieldSources, Severity, SourceMap
from feed_assets.validation.rules import validate_bundle
from tests.entities.samples import REMOVED, bundle
from tests.validation.cases import mirror

DAY = "${YEAR}/${MONTH}/${DAY}"
VALID = {"validity": {"start": "2015-01-01T00:00Z", "end": "2016-01-01T00:00Z"}}
Changes = dict[str, Any]


def feed(name: str, data: str, cluster: str = "primary", **more: Any) -> Changes:
    """A daily feed that somebody else writes."""
    locations = {"data": data, **more.pop("locations", {})}
    clusters = {cluster: {**VALID, **more}}
    return {f"feed {name}": {"name": name, "frequency": "days(1)", "locations": locations, "clusters": clusters}}


def written(data: str) -> Changes:
    """The output of a process."""
    return {"feed summary/locations/data": data}


def both(one: str, other: str) -> Changes:
    """One place that is written, and another one."""
    return {**written(f"{one}/{DAY}"), **feed("other", f"{other}/{DAY}")}


def archived(to: str, name: str = "old") -> Changes:
    return feed(name, f"/{name}/{DAY}", retention={"limit": "days(3)", "action": "archive", "archive_to": to})


def copied(name: str, path: str, source: str, target: str) -> Changes:
    """A feed that is copied from a cluster to another."""
    copies = feed(name, f"{path}/{DAY}", source, type="source")
    copies[f"feed {name}"]["clusters"][target] = {**VALID, "type": "target"}
    return copies


def mirrored(source: str, target: str, name: str = "models") -> Changes:
    return mirror(source, {"directory": target}, name)


def cluster(name: str, storage: str, **more: Any) -> Changes:
    return {f"cluster {name}": {"name": name, "storage": storage, **more}}


def tables(one: str, other: str) -> Changes:
    """A written table, and the same table by other metastores."""
    day = "day=${YEAR}-${MONTH}-${DAY}"
    return {
        **cluster("primary", "file:///data", catalog=one),
        **cluster("backup", "file:///backup", catalog=other),
        "feed summary/locations": REMOVED,
        "feed summary/table": f"catalog:web:sums#{day}",
        "feed other": {
            "name": "other",
            "frequency": "days(1)",
            "table": f"catalog:WEB:Sums#{day}",
            "clusters": {"backup": VALID},
        },
    }


def filled(one: str, other: str) -> Changes:
    """A table, and the same table by other metastores, in which a feed on files is registered."""
    registered = feed("other", f"/other/{DAY}", "backup")
    registered["feed other"]["catalog_table"] = "catalog:WEB:Sums#day=${YEAR}-${MONTH}-${DAY}"
    return {**tables(one, other), **registered}


SUMMARY, OTHER, OLD, MODELS = ("feed", "summary"), ("feed", "other"), ("feed", "old"), ("process", "models")
TMP = "file://TMP"
LINKED: Changes = cluster("primary", f"{TMP}/data")
CASES: dict[str, tuple[Changes, set[EntityKey]]] = {
    **{
        f"{one} is {other}": (both(one, other), {SUMMARY})
        for one, other in [
            ("s3://box/x", "s3a://box/x"),
            ("s3://box/x", "s3://BOX/x"),
            ("s3://box/x/", "s3://box//x"),
            ("gs://box", "gcs://box/"),
            ("sftp://host/x", "sftp://host:22/x"),
            ("sftp://me:secret@Host/x", "sftp://me@host/x"),
            ("abfss://box@one.dfs.core.windows.net/x", "abfs://box@one.blob.core.windows.net/x"),
            ("az://box/x", "abfs://box/x"),
            ("memory://A/x", "memory:///A/x"),
            (f"{TMP}/data/x", f"{TMP}/link/x"),
            (f"{TMP}/data/x", "file://localhostTMP/data/x"),
            (f"{TMP}/data/up/y", f"{TMP}/y"),
        ]
    },
    **{
        f"{one} is not {other}": (both(one, other), set())
        for one, other in [
            ("s3://box/x", "s3://box2/x"),
            ("s3://box/a%20x", "s3://box/a x"),
            ("file:///data/A", "file:///data/a"),
            ("abfs://box@one.dfs.core.windows.net/x", "abfs://box@two.dfs.core.windows.net/x"),
            ("sftp://host:2222/x", "sftp://host/x"),
            ("memory://A/x", "memory://a/x"),
        ]
    },
    "a bucket around a path in it": (both("s3://box", "s3a://box/2015/01/02"), {SUMMARY}),
    "a table by the port of its metastore": (tables("thrift://one:9083", "thrift://ONE"), {SUMMARY}),
    "a table by one of its metastores": (tables("thrift://one:9083,two:9083", "thrift://two:9083"), {SUMMARY}),
    "a table by one of its metastores, filled": (filled("thrift://one:9083,two:9083", "thrift://two"), {OTHER}),
    "a table of another metastore": (tables("thrift://one:9083", "thrift://two:9083"), set()),
    "a table at another port": (tables("thrift://one:9083", "thrift://one:9084"), set()),
    "an archive at written data": (archived(f"/summary/{DAY}"), {OLD, SUMMARY}),
    "an archive at written data by a link": ({**LINKED, **archived(f"{TMP}/link/summary/{DAY}")}, {OLD, SUMMARY}),
    "an archive around others' data": ({**archived(f"/in/{DAY}"), **feed("other", f"/in/{DAY}/x")}, {OLD}),
    "an archive at stats": (
        {**archived(f"/s/{DAY}"), **feed("other", f"/x/{DAY}", locations={"stats": f"/s/{DAY}"})},
        {OLD},
    ),
    "an archive in its own data": (archived(f"/old/{DAY}/x"), {OLD}),
    "two archives": ({**archived(f"/a/{DAY}"), **archived(f"/a/{DAY}", "older")}, {OLD, ("feed", "older")}),
    "a mirror around an archive": ({**archived(f"/a/{DAY}"), **mirrored("/models", "/a")}, {MODELS}),
    "a mirror in an archive": ({**archived(f"/a/{DAY}"), **mirrored("/models", "/a/2015/01/02/x")}, {OLD, MODELS}),
    "a cluster in an archive": (
        {**archived(f"/a/{DAY}"), **cluster("inner", "file:///data/a/2015/01/02")},
        {OLD, ("cluster", "inner")},
    ),
    "a cluster in an instance": (cluster("inner", "file:///data/summary/2015/01/02/x"), {("cluster", "inner")}),
    "a cluster in a mirror": ({**mirrored("/a", "/b"), **cluster("inner", "file:///data/b/x")}, {MODELS}),
    "a cluster in a mirror by a link": (
        {**LINKED, **mirrored("/a", "/deep/b"), **cluster("inner", f"{TMP}/link/deep/b/x")},
        {MODELS},
    ),
    "a cluster in a source": ({**mirrored("/a", "/b"), **cluster("inner", "file:///data/a/x")}, set()),
    "a cluster in a trash": (cluster("inner", "file:///data/.feed-assets/trash"), {("cluster", "inner")}),
    "a cluster in a trash by a link": ({**LINKED, **cluster("inner", f"{TMP}/bin")}, {("cluster", "inner")}),
    "a feed in a trash by a link": ({**LINKED, **feed("other", f"{TMP}/bin/{DAY}")}, {OTHER}),
    "written data in a trash by a link": ({**LINKED, **written(f"{TMP}/bin/{DAY}")}, {SUMMARY}),
    "an archive in a trash by a link": ({**LINKED, **archived(f"{TMP}/bin/{DAY}")}, {OLD}),
    "a mirror from a trash by a link": ({**LINKED, **mirrored(f"{TMP}/bin", "/b")}, {MODELS}),
    "a mirror to a trash by a link": ({**LINKED, **mirrored("/a", f"{TMP}/bin/b")}, {MODELS}),
    "nested clusters": (
        {**cluster("backup", "file:///data/deep"), **written(f"/deep/x/{DAY}"), **feed("other", f"/x/{DAY}", "backup")},
        {SUMMARY},
    ),
    "a target in its own source": (
        cluster("backup", "file:///data/clicks/2015/01/01/01/x"),
        {("cluster", "backup"), ("feed", "clicks")},
    ),
    "two written feeds": ({**copied("other", "/summary", "backup", "primary")}, {SUMMARY, OTHER}),
    "a mirror onto written data": (mirrored("/a", "/summary"), {MODELS}),
    "a mirror in written data": (mirrored("/a", "/summary/2015/01/02/x"), {MODELS}),
    "a mirror into its source by a scheme": (mirrored("s3://box/a", "s3a://box/a/b"), {MODELS}),
    "two mirrors to one place": (
        {**mirrored("/a", "s3://box/x"), **mirrored("/b", "s3a://BOX/x/", "others")},
        {MODELS, ("process", "others")},
    ),
    "a mirror of what another one writes": ({**mirrored("/a", "/b"), **mirrored("/b/x", "/c", "others")}, set()),
    "two mirrors of one place": ({**mirrored("/a", "/b"), **mirrored("/a/x", "/c", "others")}, set()),
    "a mirror of written data": (mirrored("/summary", "/b"), set()),
    "two feeds of others": ({**feed("other", f"/in/{DAY}"), **feed("more", f"/in/{DAY}/x")}, set()),
}


def within(value: Any, root: Path) -> Any:
    """A change with the folder of the test in its paths."""
    if isinstance(value, dict):
        return {key: within(each, root) for key, each in value.items()}
    return value.replace("TMP", str(root)) if isinstance(value, str) else value


@pytest.mark.parametrize(("changes", "refused"), CASES.values(), ids=CASES)
def test_places_that_are_written_are_shared_with_nobody(
    changes: Changes, refused: set[EntityKey], tmp_path: Path
) -> None:
    (tmp_path / "data/.feed-assets/trash").mkdir(parents=True)
    for name, target in (("link", "data"), ("bin", "data/.feed-assets/trash"), ("data/up", ".")):
        (tmp_path / name).symlink_to(tmp_path / target)
    issues = validate_bundle(bundle(within(changes, tmp_path)), SourceMap())
    errors = [str(issue.entity) for issue in issues if issue.severity is Severity.ERROR]
    assert sorted(errors) == sorted(f"{kind} {name!r}" for kind, name in refused)


def places_of(changes: Changes) -> SourceMap:
    """Each entity in a file of its name; the fields of its places on the second line, those of mirrors on the third."""
    lines = {(): 1, ("locations", "data"): 2, ("workflow", "mirror", "target", "directory"): 3}
    return SourceMap(
        {
            (each.kind.value, each.name): FieldSources(
                file=f"{each.name}.yaml", positions={path: (line, 1) for path, line in lines.items()}
            )
            for each in bundle(changes).entities
        }
    )


def errors_of(changes: Changes) -> list[str]:
    issues = validate_bundle(bundle(changes), places_of(changes))
    return [issue.render() for issue in issues if issue.severity is Severity.ERROR]


def test_each_feed_that_is_written_at_a_shared_place_is_named_once_with_the_others() -> None:
    others = {**copied("other", "/summary", "backup", "primary"), **feed("third", f"/summary/{DAY}/x")}
    others |= archived(f"/summary/{DAY}/y")

    def message(name: str, neighbour: str) -> str:
        return (
            f"{name}.yaml:2: feed {name!r}: a process or a copy writes the data of feed {name!r} on primary, "
            "around the archive of feed 'old' on primary (old.yaml:1), "
            f"at the data of feed {neighbour!r} on primary ({neighbour}.yaml:2), "
            "around the data of feed 'third' on primary (third.yaml:2): "
            "its publications would remove data of all. Give each its own path."
        )

    assert errors_of(others) == [
        "old.yaml:1: feed 'old': the archive on primary overlaps other data: it is inside the data of feed 'other' on "
        "primary (other.yaml:2). Use another path in archive_to.",
        message("other", "summary"),
        message("summary", "other"),
    ]


@pytest.mark.parametrize("length", [2, 3, 5])
@pytest.mark.parametrize("feeds", ["", "a", "ab", "abcde"])
def test_a_ring_of_copies_is_named_whole_to_each_of_its_members(length: int, feeds: str) -> None:
    changes: Changes = {}
    labels: list[str] = []
    for number, name in enumerate("abcde"[:length]):
        changes |= cluster(f"on-{name}", f"file:///on/{name}")
        ends = f"on-{name}", f"on-{'abcde'[(number + 1) % length]}"
        if name in feeds:
            changes |= copied(name, "/x", *ends)
            labels.append(f"feed {name!r} ({name}.yaml:2)")
        else:
            changes |= mirror({"cluster": ends[0], "directory": "/x"}, {"cluster": ends[1], "directory": "/x"}, name)
            labels.append(f"process {name!r} ({name}.yaml:3)")
    errors = errors_of(changes)
    assert [error.partition(":")[0] for error in errors] == [f"{name}.yaml" for name in "abcde"[:length]]
    for number, error in enumerate(errors):
        others = ", and ".join(labels[number + 1 :] + labels[:number])
        assert error.endswith(
            f" comes back there through {others}. Remove one of these copies, or let it write elsewhere."
        )


@pytest.mark.parametrize(("last", "is_ring"), [(0, True), (400, False)])
def test_a_long_ring_of_mirrors_is_found_and_a_long_chain_is_none(last: int, is_ring: bool) -> None:
    mirrors = [mirrored(f"file:///r/{n}/x", f"file:///r/{n + 1 if n < 399 else last}", f"m-{n}") for n in range(400)]
    errors = errors_of({key: value for each in mirrors for key, value in each.items()})
    assert len(errors) == (400 if is_ring else 0)
    assert all("and so on through 387 more" in error for error in errors)


def test_feeds_that_are_never_valid_together_make_no_ring() -> None:
    changes = {**copied("one", "/x", "primary", "backup"), **copied("two", "/x", "backup", "primary")}
    assert len(errors_of(changes)) == 2
    for entry in changes["feed two"]["clusters"].values():
        entry["validity"] = {"start": "2016-01-01T00:00Z", "end": "2017-01-01T00:00Z"}
    assert errors_of(changes) == []
