from pathlib import Path
from typing import Any

import pytest

from feed_assets.definitions.errors import DefinitionStoreError
from feed_assets.definitions.falcon.exporting import export_documents, write_documents
from feed_assets.definitions.falcon.importing import (
    ImportedFile,
    ImportMapping,
    ImportOutcome,
    ImportReport,
    import_documents,
    parse_mapping,
)
from feed_assets.definitions.falcon.reviewing import adapt_script, compare_script
from feed_assets.definitions.folder import DefinitionFolder, open_folder
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import DefinitionsError, EntityNotFoundError
from feed_assets.entities.workflow import Workflow, WorkflowEngine
from feed_assets.loading.documents import NoteKind
from feed_assets.loading.entity_files import EntityFile, read_entity_files
from feed_assets.log.definitions.records import DocumentFormat
from tests.instances.harness import process
from tests.loading.bundles import load_bundle

DOCUMENTS = Path(__file__).parents[2] / "loading" / "falcon" / "documents"
NAMES = sorted(file.stem for file in DOCUMENTS.glob("*.xml"))
NOTHING = ImportMapping()


def _files(*names: str) -> list[EntityFile]:
    return [EntityFile(name=f"{name}.xml", content=(DOCUMENTS / f"{name}.xml").read_bytes()) for name in names or NAMES]


def _import(folder: Path, *names: str, mapping: ImportMapping = NOTHING, **options: Any) -> ImportReport:
    return import_documents(_files(*names), open_folder(folder), mapping, **options)


def _notes(file: ImportedFile, kind: NoteKind) -> list[str]:
    return [note.message for note in file.notes if note.kind is kind]


def test_every_document_becomes_a_file_that_says_the_same(tmp_path: Path) -> None:
    report = _import(tmp_path / "new")
    assert (report.has_failed, report.is_written, len(report.files)) == (False, True, len(NAMES))
    environ = {"DB_PASSWORD": "top-secret"}
    imported = load_bundle(tmp_path / "new", variables={}, environ=environ)
    assert imported.issues == ()
    assert imported.bundle == load_bundle(DOCUMENTS, variables={}, environ=environ).bundle
    assert (tmp_path / "new/datasource/orders-db.yaml").read_text().count("${env:DB_PASSWORD}") == 1


def test_documents_can_be_written_as_falcons_own(tmp_path: Path) -> None:
    report = import_documents(_files(), open_folder(tmp_path), NOTHING, file_format=DocumentFormat.XML)
    assert {file.target for file in report.files} >= {"feed/clicks.xml", "process/daily-spark.xml"}
    environ = {"DB_PASSWORD": "top-secret"}
    assert (
        load_bundle(tmp_path, variables={}, environ=environ).bundle
        == load_bundle(DOCUMENTS, variables={}, environ=environ).bundle
    )


def test_importing_again_changes_nothing(tmp_path: Path) -> None:
    _import(tmp_path)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.yaml")}
    assert {file.outcome for file in _import(tmp_path).files} == {ImportOutcome.UNCHANGED}
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.yaml")} == before


def test_a_file_that_says_something_else_is_replaced_only_by_force(tmp_path: Path) -> None:
    _import(tmp_path, "clicks")
    file = tmp_path / "feed/clicks.yaml"
    file.write_text(file.read_text() + "# mine\n")
    report = _import(tmp_path, "clicks", "primary")
    assert (report.has_failed, report.is_written) == (True, False)
    assert [issue.render() for issue in report.files[0].issues] == [
        "clicks.xml:2: feed 'clicks': feed/clicks.yaml already exists and differs. Remove it, or import with --force."
    ]
    assert not (tmp_path / "cluster").exists()
    forced = _import(tmp_path, "clicks", "primary", is_forced=True)
    assert [each.outcome for each in forced.files] == [ImportOutcome.REPLACED, ImportOutcome.NEW]
    assert "# mine" not in file.read_text()


def test_one_wrong_document_keeps_all_from_being_written(tmp_path: Path) -> None:
    wrong = EntityFile(name="wrong.xml", content=b'<feed xmlns="uri:falcon:feed:0.1" name="f"/>')
    binary = EntityFile(name="binary.xml", content=b"\xff\xfe")
    report = import_documents([*_files("clicks"), wrong, binary], open_folder(tmp_path), NOTHING)
    assert [file.outcome for file in report.files] == [ImportOutcome.NEW, ImportOutcome.REFUSED, ImportOutcome.REFUSED]
    assert report.files[1].issues
    assert list(tmp_path.iterdir()) == []
    assert "nothing was written" in report.summary


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    report = _import(tmp_path, "clicks", is_dry_run=True)
    assert (report.has_failed, report.is_written, list(tmp_path.iterdir())) == (False, False, [])


def test_two_documents_of_one_entity_are_refused(tmp_path: Path) -> None:
    twice = [*_files("clicks"), EntityFile(name="again.xml", content=_files("clicks")[0].content)]
    report = import_documents(twice, open_folder(tmp_path), NOTHING)
    assert [file.outcome for file in report.files] == [ImportOutcome.NEW, ImportOutcome.REFUSED]
    assert report.files[1].issues[0].message == "clicks.xml also declares feed 'clicks'"


class _Failing(DefinitionFolder):
    """A folder whose disk is full after some files."""

    def __init__(self, inner: DefinitionFolder, files: int) -> None:
        self._inner = inner
        self._left = files

    @property
    def location(self) -> str:
        return self._inner.location

    @property
    def only_file(self) -> str | None:
        return None

    def exists(self) -> bool:
        return self._inner.exists()

    def name_of(self, shown: str) -> str:
        return self._inner.name_of(shown)

    def shown(self, name: str) -> str:
        return self._inner.shown(name)

    def _read(self, name: str) -> bytes | None:
        return self._inner._read(name)

    def _write(self, name: str, content: bytes) -> None:
        self._left -= 1
        if self._left == -1:
            raise OSError("no space left")
        self._inner._write(name, content)

    def _remove(self, name: str) -> None:
        self._inner._remove(name)


def test_what_was_written_is_taken_back_when_the_disk_is_full(tmp_path: Path) -> None:
    _import(tmp_path, "clicks")
    file = tmp_path / "feed/clicks.yaml"
    file.write_text("kind: feed\n")
    with pytest.raises(DefinitionStoreError, match="no space left"):
        import_documents(_files(), _Failing(open_folder(tmp_path), 4), NOTHING, is_forced=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]
    assert file.read_text() == "kind: feed\n"


def test_row_28_pig_cannot_run_here_until_it_is_given_another_workflow(tmp_path: Path) -> None:
    _check_replaced(tmp_path, "monthly-pig", "pig")


def test_row_29_oozie_cannot_run_here_until_it_is_given_another_workflow(tmp_path: Path) -> None:
    _check_replaced(tmp_path, "hourly-oozie", "oozie")


def _check_replaced(folder: Path, name: str, engine: str) -> None:
    (file,) = _import(folder, name).files
    (unable,) = _notes(file, NoteKind.UNABLE)
    assert unable.startswith(f"engine {engine}: the process is declared and validated, but cannot be scheduled.")
    assert f"--replace-workflow {name}=sql:path.sql" in unable
    mapping = NOTHING.with_workflows({name: Workflow(engine=WorkflowEngine.SQL, path="sql/a.sql")})
    (replaced,) = _import(folder, name, mapping=mapping, is_forced=True).files
    assert _notes(replaced, NoteKind.UNABLE) == []
    assert f"workflow {engine} " in _notes(replaced, NoteKind.MAPPED)[0]
    (process,) = load_bundle(folder, variables={}, environ={}).bundle.processes
    assert process.workflow == mapping.workflows[name]


def test_late_inputs_of_a_replaced_workflow_run_the_replacement(tmp_path: Path) -> None:
    mapping = NOTHING.with_workflows({"daily-spark": Workflow(path="jobs:run")})
    (file,) = _import(tmp_path, "daily-spark", mapping=mapping).files
    assert any("late input clicks" in note for note in _notes(file, NoteKind.CHECK))
    (process,) = load_bundle(tmp_path, variables={}, environ={}).bundle.processes
    assert process.late_process is not None
    assert process.late_process.inputs == {"clicks": None, "users": None}


def test_storage_that_nothing_opens_is_named_and_addresses_are_mapped(tmp_path: Path) -> None:
    (file,) = _import(tmp_path, "primary").files
    assert _notes(file, NoteKind.UNABLE) == []
    mapping = ImportMapping(urls={"hdfs://nn:8020": "hftp://nn:8020"})
    (file,) = _import(tmp_path, "primary", mapping=mapping, is_forced=True).files
    assert _notes(file, NoteKind.UNABLE) == [
        "storage 'hftp://nn:8020': 'hftp' storage is not supported; map it, urls: {'hftp://nn:8020': 's3://bucket'}"
    ]
    mapping = ImportMapping(urls={"hdfs://nn:8020": "memory://lake", "hdfs://nn": "memory://no", "tcp://x": "y"})
    report = _import(tmp_path, "primary", mapping=mapping, is_forced=True)
    assert _notes(report.files[0], NoteKind.UNABLE) == []
    assert "interfaces.write.endpoint: 'hdfs://nn:8020' → 'memory://lake'" in _notes(report.files[0], NoteKind.MAPPED)
    assert load_bundle(tmp_path, variables={}, environ={}).bundle.get_cluster("primary").storage == "memory://lake"
    assert report.unused == ("the address hdfs://nn", "the address tcp://x")


def test_what_is_declared_and_not_acted_on_is_named(tmp_path: Path) -> None:
    (document,) = _files("clicks")
    (file,) = import_documents([document], open_folder(tmp_path), NOTHING).files
    named = {note.partition(" has no effect yet")[0] for note in _notes(file, NoteKind.UNABLE)}
    assert [each.rpartition(".")[2] for each in named] == ["queue"]
    assert any("in Falcon for each: write extract: {history: true}" in note for note in _notes(file, NoteKind.CHECK))


def test_the_report_is_about_the_document_after_its_replacements(tmp_path: Path) -> None:
    mapping = ImportMapping(urls={"hdfs://nn:8020": "s3://lake"}).with_workflows(
        {"daily-spark": Workflow(path="jobs:run")}
    )
    cluster, spark = _import(tmp_path, "primary", "daily-spark", mapping=mapping).files
    assert "interface write → storage: 's3://lake'" in _notes(cluster, NoteKind.MAPPED)
    told = [note.message for note in spark.notes]
    of_the_old_one = ("spark-submit of", "paths of workflows", "Falcon never runs", "workflow.args")
    assert not any(words in each for words in of_the_old_one for each in told)
    assert any("as you asked" in each for each in told)


def test_a_report_says_of_each_file_what_became_of_it(tmp_path: Path) -> None:
    lines = list(_import(tmp_path, "weekly-hive").lines)
    copy = "paths of workflows and libraries are relative to the project, or URLs; copy the files there"
    assert lines == [
        "weekly-hive.xml: process 'weekly-hive' → process/weekly-hive.yaml (new)",
        "  carried over: clusters, parallel, order, frequency, workflow",
        "  mapped: line 6: engine hive → sql: '/apps/hive/weekly.hql'",
        "  to check: line 6: a SQL workflow is a .sql file: rename the script, or give another with --replace-workflow",
        f"  to check: line 6: {copy}",
        "  to check: line 6: a SQL script reads each input as a view with its instances alone; its last result becomes "
        "the output, so it does not insert",
        "  validate refuses: line 2: there is no cluster 'primary'. Declare it, or refer to another cluster.",
        "  validate refuses: line 6: workflow.path '/apps/hive/weekly.hql' does not match engine sql: it does not end "
        "with .sql. Write the path of a .sql file.",
    ]


def test_a_mapping_file_names_workflows_and_addresses() -> None:
    text = b'workflows: {daily: {engine: python, path: "jobs:run"}}\nurls: {"hdfs://nn": "s3://b"}\n'
    mapping = parse_mapping(EntityFile(name="map.yaml", content=text))
    assert mapping.workflows["daily"] == Workflow(path="jobs:run")
    assert mapping.urls == {"hdfs://nn": "s3://b"}
    assert parse_mapping(EntityFile(name="map.yaml", content=b"")) == NOTHING


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"workflow: {}", r"map.yaml:1: workflow: "),
        (b"urls: {a: [1]}", r"map.yaml:1: urls.a: text is expected"),
        (b"urls: [", r"map.yaml:\d+: the file is not YAML"),
        (b"- a", r"map.yaml:1: "),
        (b"\xff", r"map.yaml:1: the file is not UTF-8"),
        (b"workflows: {daily: {engine: sql}}", r"map.yaml:1: workflows.daily: 'path' is missing"),
    ],
)
def test_a_wrong_mapping_file_is_refused_with_its_line(content: bytes, expected: str) -> None:
    with pytest.raises(DefinitionsError, match=expected):
        parse_mapping(EntityFile(name="map.yaml", content=content))


def test_what_is_declared_is_exported_with_its_references(tmp_path: Path) -> None:
    _import(tmp_path / "entities")
    documents = export_documents(str(tmp_path / "entities"))
    assert [document.file for document in documents][:2] == ["cluster/primary.xml", "datasource/orders-db.xml"]
    assert "<passwordText>${env:DB_PASSWORD}</passwordText>" in documents[1].text
    report = write_documents(documents, open_folder(tmp_path / "xml"), is_forced=False, is_dry_run=False)
    assert report.is_written
    environ = {"DB_PASSWORD": "top-secret"}
    assert (
        load_bundle(tmp_path / "xml", variables={}, environ=environ).bundle
        == load_bundle(DOCUMENTS, variables={}, environ=environ).bundle
    )


def test_an_export_replaces_other_files_only_by_force(tmp_path: Path) -> None:
    documents = export_documents(str(DOCUMENTS), Kind.FEED, "clicks")
    folder = open_folder(tmp_path)
    assert not write_documents(documents, folder, is_forced=False, is_dry_run=True).is_written
    write_documents(documents, folder, is_forced=False, is_dry_run=False)
    write_documents(documents, folder, is_forced=False, is_dry_run=False)
    (tmp_path / "feed/clicks.xml").write_text("<feed/>")
    with pytest.raises(DefinitionsError, match=r"feed/clicks\.xml already exists"):
        write_documents(documents, folder, is_forced=False, is_dry_run=False)
    assert write_documents(documents, folder, is_forced=True, is_dry_run=False).replaced == ("feed/clicks.xml",)


def test_only_what_can_be_read_is_exported(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: cluster\nname: a\n")
    with pytest.raises(DefinitionsError, match="'storage' is missing"):
        export_documents(str(tmp_path), Kind.CLUSTER, "a")
    with pytest.raises(DefinitionsError, match="'storage' is missing"):
        export_documents(str(tmp_path))
    with pytest.raises(EntityNotFoundError, match="there is no cluster 'ab'"):
        export_documents(str(tmp_path), Kind.CLUSTER, "ab")


def test_a_folder_of_entities_may_hold_xml_beside_yaml(tmp_path: Path) -> None:
    (tmp_path / "clicks.xml").write_bytes(_files("clicks")[0].content)
    (tmp_path / "c.yaml").write_text("kind: cluster\nname: primary\nstorage: file:///data\n")
    (tmp_path / ".hidden.xml").write_text("<no/>")
    assert [Path(file.name).name for file in read_entity_files(tmp_path)] == ["c.yaml", "clicks.xml"]
    loaded = load_bundle(tmp_path, variables={}, environ={})
    assert loaded.issues == ()
    assert [entity.key for entity in loaded.bundle.entities] == [("cluster", "primary"), ("feed", "clicks")]


def test_variables_and_environment_are_filled_into_xml_as_into_yaml(tmp_path: Path) -> None:
    text = (DOCUMENTS / "primary.xml").read_text().replace("hdfs://nn:8020", "file://${ROOT}/${env:SUB}")
    (tmp_path / "primary.xml").write_text(text)
    loaded = load_bundle(tmp_path, variables={"ROOT": "/data"}, environ={"SUB": "a"})
    assert loaded.bundle.get_cluster("primary").storage == "file:///data/a"
    missing = load_bundle(tmp_path, variables={}, environ={})
    assert [(issue.code, issue.source.line if issue.source else None) for issue in missing.issues] == [
        ("variable-missing", 8),
        ("env-missing", 8),
    ]


CLUSTER = """<cluster name="primary" colo="x" xmlns="uri:falcon:cluster:0.1"><interfaces>
<interface type="readonly" endpoint="hftp://h:1" version="1"/>
<interface type="write" endpoint="wasbs://box@one.blob.core.windows.net" version="1"/>
<interface type="workflow" endpoint="localoozie" version="1"/></interfaces>
<locations><location name="staging" path="/s"/><location name="temp" path="/s"/></locations></cluster>"""
FEED = """<feed name="sums" xmlns="uri:falcon:feed:0.1"><groups>a,b</groups><frequency>days(1)</frequency>
<clusters><cluster name="primary"><validity start="2015-01-01T00:00Z" end="2016-01-01T00:00Z"/>
<retention limit="days(9)" action="delete"/></cluster></clusters>
<locations><location type="data" path="/sums/${region}/${YEAR}-${MONTH}-${DAY}"/></locations>
<ACL owner="a" group="b" permission="*"/><schema location="a" provider="b"/>
<properties><property name="region" value="eu"/></properties></feed>"""
SCRIPT = """-- the sums of ${falcon_clicks_table}
SET spark.sql.ansi.enabled = false;
INSERT OVERWRITE TABLE ${falcon_out_database}.${falcon_out_table} PARTITION (ds = '${hiveconf:day}', x)
SELECT region, count(*), '${day}' FROM ${falcon_clicks_database}.${falcon_clicks_table} c
WHERE ${falcon_clicks_filter} AND kind = ${kind} AND note = ';INSERT'
"""


def _read(folder: Path, *texts: str, mapping: ImportMapping = NOTHING) -> tuple[ImportedFile, ...]:
    files = [EntityFile(name=f"{number}.xml", content=text.encode()) for number, text in enumerate(texts)]
    return import_documents(files, open_folder(folder), mapping).files


def test_properties_of_a_feed_are_filled_into_its_paths_and_tables(tmp_path: Path) -> None:
    (feed,) = _read(tmp_path, FEED)
    assert "locations.data: ${region} → 'eu', a property of the feed" in _notes(feed, NoteKind.MAPPED)
    assert b"/sums/eu/${YEAR}-${MONTH}-${DAY}" in feed.content
    seed = '<table uri="catalog:default:clicks#ds=${YEAR}-${MONTH}-${DAY}-${HOUR};region=${region}"/>'
    table = FEED[: FEED.index("<locations>")] + seed + FEED[FEED.index("<ACL") :]
    (feed,) = _read(tmp_path / "seed", table)
    assert b"region=eu" in feed.content
    (feed,) = _read(tmp_path / "other", table.replace('name="region"', 'name="zone"'))
    told = "table: ${region} is no property of the feed: add one, or write its value"
    assert told in _notes(feed, NoteKind.CHECK)
    assert any("${region} is not a variable of paths" in note for note in _notes(feed, NoteKind.REFUSED))


def test_azure_is_written_by_the_name_of_its_service_here(tmp_path: Path) -> None:
    (cluster,) = _read(tmp_path, CLUSTER)
    assert "interface write → storage: 'abfss://box@one.dfs.core.windows.net'" in _notes(cluster, NoteKind.MAPPED)
    assert _notes(cluster, NoteKind.UNABLE) == []
    old = "wasbs://box@one.blob.core.windows.net"
    (cluster,) = _read(tmp_path / "mapped", CLUSTER, mapping=ImportMapping(urls={old: "s3://lake"}))
    assert b"storage: s3://lake" in cluster.content


def test_an_import_says_what_validate_would_say_beside_what_the_folder_has(tmp_path: Path) -> None:
    (feed,) = _read(tmp_path / "alone", FEED)
    refused = "there is no cluster 'primary'. Declare it, or refer to another cluster."
    assert _notes(feed, NoteKind.REFUSED) == [refused]
    _read(tmp_path, CLUSTER)
    (feed,) = _read(tmp_path, FEED.replace('${DAY}"', '${DAY} "'))
    assert _notes(feed, NoteKind.REFUSED) == []
    assert any("has a blank at its end" in note for note in _notes(feed, NoteKind.CHECK))


def test_what_differs_from_falcon_is_said_of_the_entities_that_it_concerns(tmp_path: Path) -> None:
    other = CLUSTER.replace('name="primary"', 'name="backup"')
    forever = FEED.replace('"sums"', '"always"').replace("/sums/", "/always/").replace("2016-01", "2099-01")
    target = '<cluster name="backup" type="target">' + FEED[FEED.index("<validity") : FEED.index("</cluster>") + 10]
    copied = FEED.replace('name="primary"', 'name="primary" type="source"').replace(
        "</clusters>", f"{target}</clusters>"
    )
    copied = copied.replace("</locations>", '<location type="stats" path="/stats/${YEAR}"/></locations>')
    copied = copied.replace("</properties>", '<property name="ignoreErrors" value="true"/></properties>')
    cluster, backup, always, feed = _read(tmp_path, CLUSTER, other, forever, copied)
    assert "the storage is that of cluster backup, too: a path is one place" in _notes(cluster, NoteKind.CHECK)
    assert any("locations.temp is the folder" in note for note in _notes(backup, NoteKind.CHECK))
    words = (
        "as often as its limit requires",
        "goes on after the end",
        "replicas are replaced",
        "ignoreErrors: ",
        "shared",
    )
    assert [
        [word for word in words if any(word in note for note in _notes(each, NoteKind.CHECK))]
        for each in (always, feed)
    ] == [
        ["as often as its limit requires"],
        [*words],
    ]


def test_a_hive_script_beside_its_document_is_compared_with_what_runs_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weekly.hql").write_text(SCRIPT, "utf-8")
    (hive,) = _read(tmp_path / "out", (DOCUMENTS / "weekly-hive.xml").read_text("utf-8"))
    assert [line for line in hive.difference if line[:1] in "+-"] == [
        "--- weekly.hql",
        "+++ weekly.sql",
        "--- the sums of ${falcon_clicks_table}",
        "+-- the sums of :falcon_clicks_table",
        "-INSERT OVERWRITE TABLE ${falcon_out_database}.${falcon_out_table} PARTITION (ds = '${hiveconf:day}', x)",
        "-SELECT region, count(*), '${day}' FROM ${falcon_clicks_database}.${falcon_clicks_table} c",
        "-WHERE ${falcon_clicks_filter} AND kind = ${kind} AND note = ';INSERT'",
        "+SELECT region, count(*), :day FROM clicks c",
        "+WHERE true AND kind = :kind AND note = ';INSERT'",
    ]
    assert "    +SELECT region, count(*), :day FROM clicks c" in list(hive.render())
    two = adapt_script("INSERT INTO a_b WITH x AS (SELECT 1) SELECT * FROM x; INSERT INTO c SELECT 2", ["a-b", "c"])
    assert two == "-- output: a-b\nWITH x AS (SELECT 1) SELECT * FROM x; -- output: c\nSELECT 2"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<frequency>", "<frequency\xa0>"),
        ("<frequency>", "\xa0<frequency>"),
        ("days(1)", "days(\xa01)"),
        ('name="sums"', 'name="sums\xa0"'),
    ],
)
def test_no_break_spaces_are_told(tmp_path: Path, old: str, new: str) -> None:
    (feed,) = _read(tmp_path, FEED.replace(old, new, 1))
    assert feed.issues[0].remedy == "It has no-break spaces, as copied from a web page: write blanks."


def test_groups_have_no_blanks_between_them(tmp_path: Path) -> None:
    (feed,) = _read(tmp_path, FEED.replace("a,b", " group8,   group9 "))
    (issue,) = feed.issues
    assert issue.render() == (
        "0.xml:1: feed 'sums': <groups> is 'group8,   group9': Falcon's schema has no blanks between groups. "
        "Write group8,group9."
    )


def test_a_script_whose_name_is_too_long_for_a_file_is_none(tmp_path: Path) -> None:
    work = process("p", workflow={"engine": "sql", "path": "a" * 5_000})
    assert compare_script(work, str(tmp_path / "p.xml")) == ()
