import json
from pathlib import Path

import pytest

from feed_assets.definitions.falcon.exporting import export_documents
from feed_assets.entities.common import Kind
from tests.cli.project import must, run, shown

DOCUMENTS = Path(__file__).parents[2] / "loading" / "falcon" / "documents"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _document(name: str) -> str:
    return str(DOCUMENTS / f"{name}.xml")


def test_import_converts_files_and_says_what_became_of_them(project: Path) -> None:
    result = must("import-falcon", _document("clicks"), _document("weekly-hive"), "--to", "entities")
    assert "feed 'clicks' → feed/clicks.yaml (new)\n  carried over: tags, partitions (2), " in result.stdout
    assert "  mapped: line 6: engine hive → sql: '/apps/hive/weekly.hql'\n" in result.stdout
    assert "2 new. Review the list, then run: feed-assets validate" in result.stderr
    assert (project / "entities/feed/clicks.yaml").read_text().startswith("kind: feed\nname: clicks\n")
    validated = run("validate", "entities", "--output", "json")
    codes = {issue["code"] for issue in json.loads(validated.stdout)["issues"] if issue["severity"] == "error"}
    assert "unknown-reference" in codes


@pytest.mark.parametrize("zone", ["GMT+08:00", "Asia/Shanghai"])
def test_days_go_by_the_zone_of_falcons_form_and_paths_by_utc(project: Path, zone: str) -> None:
    text = Path(_document("clicks")).read_text()
    assert "<timezone>UTC</timezone>" in text
    (project / "clicks.xml").write_text(text.replace("<timezone>UTC</timezone>", f"<timezone>{zone}</timezone>"))
    result = run("import-falcon", "clicks.xml", "--to", "entities")
    assert result.exit_code == 0
    assert f"line 12: the days are those of {zone}, but Falcon writes the times in paths in UTC" in result.stdout
    assert f"timezone: {zone}\npath_timezone: UTC\n" in (project / "entities/feed/clicks.yaml").read_text()


def test_a_folder_means_the_xml_in_it(project: Path) -> None:
    (project / "in").mkdir()
    (project / "in/a.xml").write_text(Path(_document("primary")).read_text())
    (project / "in/b.yaml").write_text("kind: cluster\n")
    result = run("import-falcon", "in", "--to", "out", "--output", "json")
    (file,) = json.loads(result.stdout)["files"]
    assert (result.exit_code, file["outcome"]) == (0, "new")
    (project / "in/a.xml").rename(project / "in/a.txt")
    assert must("import-falcon", "in/a.txt", "--to", "out").stderr.startswith(f"{project}/out: 1 unchanged.")
    assert "There is no XML in FILES: in/b.yaml." in must("import-falcon", "in", "--to", "out", code=2).stderr


def test_workflows_are_replaced_on_the_command_line_and_in_a_file(project: Path) -> None:
    (project / "map.yaml").write_text(
        'workflows: {monthly-pig: {path: "a:b"}, hourly-oozie: {engine: sql, path: a.sql}}\n'
    )
    result = run(
        "import-falcon", _document("monthly-pig"), _document("hourly-oozie"), "--to", "out", "--map", "map.yaml",
        "--replace-workflow", "monthly-pig=spark-submit:jobs/a.py",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "cannot run here" not in result.stdout
    assert "workflow: {engine: spark-submit, path: jobs/a.py}" in (project / "out/process/monthly-pig.yaml").read_text()
    assert "workflow: {engine: sql, path: a.sql}" in (project / "out/process/hourly-oozie.yaml").read_text()


def test_export_prints_or_writes_falcons_xml(project: Path) -> None:
    (project / "entities").mkdir()
    (project / "entities/a.xml").write_text(Path(_document("clicks")).read_text())
    printed = must("export-falcon", "feed", "clicks")
    assert printed.stdout.startswith('<?xml version="1.0" encoding="UTF-8"?>\n<feed xmlns="uri:falcon:feed:0.1"')
    as_json = shown("export-falcon", "--all")
    assert [(each["key"]["kind"], each["key"]["name"], each["text"]) for each in as_json["documents"]] == [
        ("feed", "clicks", printed.stdout)
    ]
    assert [len(export_documents("entities", kind, None)) for kind in (Kind.FEED, Kind.PROCESS)] == [1, 0]  # by HTTP
    assert run("export-falcon", "--all", "--to", "xml", "--dry-run").exit_code == 0
    assert not (project / "xml").exists()
    written = run("export-falcon", "--all", "--to", "xml")
    assert (written.exit_code, written.stdout) == (0, "feed 'clicks' → feed/clicks.xml\n")
    assert (project / "xml/feed/clicks.xml").read_text() == printed.stdout
    (project / "xml/feed/clicks.xml").write_text("<feed/>")
    assert run("export-falcon", "--all", "--to", "xml").exit_code == 1
    replaced = shown("export-falcon", "--all", "--to", "xml", "--force")
    assert replaced["is_written"] is True


def test_what_falcon_cannot_say_is_refused_by_name(project: Path) -> None:
    process = (
        "{kind: process, name: months, frequency: months(1), description: 'not nextMonth(0,0,0)', "
        "workflow: {path: 'jobs:f'}, "
        "clusters: {primary: {validity: {start: 2026-01-01T00:00Z}}}, "
        "inputs: {a: {feed: clicks, start: 'currentMonth(0,0,0)', end: 'currentMonth(27,0,0)'}}}"
    )
    (project / "entities").mkdir()
    (project / "entities/a.yaml").write_text(process)
    must("export-falcon", "process", "months")
    (project / "entities/a.yaml").write_text(process.replace("currentMonth(27,0,0)", "nextMonth(-1,0,0)"))
    told = must("export-falcon", "process", "months", code=1).stderr
    assert "process 'months': nextMonth is a function that Falcon does not have" in told


def test_what_chooses_other_rows_than_falcon_would_move_is_refused(project: Path) -> None:
    def declare(**moved: object) -> None:
        on = {"validity": {"start": "2026-01-01T00:00Z"}, **moved}
        feed = {"kind": "feed", "name": "orders", "frequency": "days(1)", "clusters": {"primary": on}}
        (project / "entities/a.yaml").write_text(json.dumps(feed))

    (project / "entities").mkdir()
    shop, table = {"name": "shop"}, {"name": "shop", "table": "orders"}
    for source, unsaid in (
        ({**shop, "query": "SELECT 1"}, "import.source.query"),
        ({**table, "where": "n > 1"}, "import.source.where"),
        ({**table, "extract": {"type": "incremental", "by": "mark"}}, "import.source.extract.by"),
    ):
        declare(**{"import": {"source": source}})
        told = must("export-falcon", "feed", "orders", code=1).stderr
        assert f"feed 'orders': clusters.primary.{unsaid}: Falcon would move other rows" in told
    insert = {"target": {**table, "load": {"type": "insert"}}}
    declare(export={**insert, "arguments": {"--update-key": "id"}})
    unsaid = "export.target.load.type: insert with --update-key: Falcon would"
    assert unsaid in must("export-falcon", "feed", "orders", code=1).stderr
    declare(export=insert)
    assert '<load type="allowinsert"/>' in must("export-falcon", "feed", "orders").stdout
    declare(**{"import": {"source": {**table, "extract": {"history": True}}}})
    assert '<extract type="full">' in must("export-falcon", "feed", "orders").stdout


def test_export_of_what_is_not_declared_names_what_is_meant(project: Path) -> None:
    result = must("export-falcon", "feed", "click", "--from", str(DOCUMENTS), code=1)
    assert "there is no feed 'click'. Did you mean 'clicks'?" in result.stderr
