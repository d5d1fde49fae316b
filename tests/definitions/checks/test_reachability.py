import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from feed_assets.cli.main import main
from feed_assets.definitions.checks.code_checks import check_code
from feed_assets.definitions.checks.live_checks import check_reachability
from feed_assets.entities.bundle import Bundle
from feed_assets.issues import FieldSources, SourceMap
from tests.engines.java_tools import DERBY_JARS, DRIVER, make_database, make_keystore
from tests.entities.samples import REMOVED, bundle
from tests.object_servers import BUCKET
from tests.servers import free_port
from tests.tables import Catalog
from tests.validation.cases import mirror

CLUSTER, DAILY = ("cluster", "primary"), ("process", "daily")
PATIENCE = 120.0
"""Seconds: what a check may take on a machine that has much else to do."""


@pytest.fixture
def listener() -> Iterator[int]:
    """The port of a server that accepts, and never says anything."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


def _texts(entities: Bundle, *keys: tuple[str, str], root: Path = Path("/"), **options: Any) -> list[str]:
    patient = {"seconds": PATIENCE, **options}
    issues = check_reachability(entities, keys or None, sources=SourceMap(), root=root, **patient)
    return [issue.render() for issue in issues]


def _cluster(changes: Mapping[str, Any], **options: Any) -> list[str]:
    return _texts(bundle({f"cluster primary/{path}": value for path, value in changes.items()}), CLUSTER, **options)


def test_row_7_a_cluster_whose_parts_can_be_reached_is_in_order(tmp_path: Path, listener: int) -> None:
    spark = {"master": f"spark://127.0.0.1:{free_port()},127.0.0.1:{listener}"}
    assert _cluster({"storage": f"file://{tmp_path}/new/folder", "spark": spark}) == []
    assert not (tmp_path / "new").exists()


def test_row_7_an_unreachable_write_endpoint_is_refused_naming_the_interface(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    storage = f"file://{tmp_path}/file"
    interfaces = {"write": {"endpoint": storage, "version": "1"}}
    (text,) = _cluster({"storage": None, "interfaces": interfaces})
    assert text == (
        f"cluster 'primary': the write interface cannot be used: {storage}: the filesystem refused: Not a directory "
        f"({tmp_path}/file). Check that the storage is reachable, that it has space and that this user may use the "
        "path."
    )


def test_row_7_a_storage_that_nothing_opens_is_refused() -> None:
    (text,) = _cluster({"storage": "hftp://host:8020"})
    assert "the storage cannot be used: hftp://host:8020: 'hftp' storage is not supported" in text


@pytest.mark.server
def test_row_7_a_bucket_that_does_not_exist_is_refused(s3_options: dict[str, object]) -> None:
    assert _cluster({"storage": f"s3://{BUCKET}/new", "storage_options": s3_options}) == []
    (text,) = _cluster({"storage": "s3://nowhere/data", "storage_options": s3_options})
    assert text == (
        "cluster 'primary': the storage cannot be used: s3://nowhere/data: bucket nowhere does not exist at "
        f"{s3_options['endpoint_url']}. Create it, or correct the storage of the cluster."
    )
    silent = {**s3_options, "endpoint_url": "http://127.0.0.1:1"}
    (text,) = _cluster({"storage": f"s3://{BUCKET}/new", "storage_options": silent})
    assert "nothing answers at http://127.0.0.1:1 (Connection refused). Correct host and port in endpoint_url" in text


@pytest.mark.parametrize(
    ("spark", "reason"),
    [
        ({"master": "spark://127.0.0.1:1"}, "Spark at spark://127.0.0.1:1: no answer at 127.0.0.1:1"),
        ({"master": "k8s://https://127.0.0.1:1"}, "Kubernetes at k8s://https://127.0.0.1:1: no answer"),
        ({"master": "yarn"}, "its configuration is missing: neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set"),
        ({"remote": "sc://127.0.0.1:1/;token=abc"}, "Spark Connect at sc://127.0.0.1:1: no answer"),
    ],
)
def test_row_7_a_spark_that_does_not_answer_is_refused(spark: dict[str, str], reason: str, tmp_path: Path) -> None:
    (text,) = _cluster({"storage": f"file://{tmp_path}", "spark": spark}, environ={})
    assert reason in text
    assert "abc" not in text


def test_row_7_the_execute_interface_is_reached_where_spark_runs_on_yarn(tmp_path: Path, listener: int) -> None:
    for port, count in ((listener, 0), (free_port(), 1)):
        changes = {
            "storage": f"file://{tmp_path}",
            "spark": {"master": "yarn"},
            "interfaces": {"execute": {"endpoint": f"127.0.0.1:{port}", "version": "1"}},
        }
        texts = _cluster(changes, environ={"HADOOP_CONF_DIR": str(tmp_path)})
        assert len(texts) == count


def test_row_7_what_does_not_answer_in_time_is_refused(tmp_path: Path, listener: int) -> None:
    begun = time.monotonic()
    changes = {"storage": f"file://{tmp_path}", "catalog": f"thrift://127.0.0.1:{listener}"}
    (text,) = _cluster(changes, seconds=0.5)
    assert "its catalog cannot be used: no answer within 0.5 seconds" in text
    assert time.monotonic() - begun < 60


def test_row_7_a_metastore_that_does_not_answer_is_refused(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    (text,) = _cluster({"storage": f"file://{tmp_path}", "catalog": f"thrift://{address}"})
    assert f"the metastore: it does not answer at {address}: " in text


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    folder = tmp_path / "apps" / "staging"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    return folder


def _folders(storage: Path, *, prepare: bool = False, **locations: str) -> list[str]:
    return _cluster({"storage": storage.as_uri(), "locations": locations}, prepare=prepare)


def test_row_8_staging_with_other_rights_is_refused(tmp_path: Path, staging: Path) -> None:
    assert _folders(tmp_path, staging="/apps/staging") == []
    staging.chmod(0o755)
    assert _folders(tmp_path, staging="/apps/staging") == [
        f"cluster 'primary': the staging folder {staging} cannot be used: its permissions are 755, and must be 777. "
        f"Create it, and set its permissions: chmod 777 {staging}."
    ]


def test_row_8_staging_that_is_missing_or_a_file_is_refused(tmp_path: Path, staging: Path) -> None:
    (tmp_path / "file").touch()
    assert "it does not exist" in _folders(tmp_path, staging="/nowhere")[0]
    assert "it is not a directory" in _folders(tmp_path, staging="/file")[0]


def test_row_8_working_with_other_rights_is_refused(tmp_path: Path, staging: Path) -> None:
    working = tmp_path / "working"
    working.mkdir()
    working.chmod(0o755)
    assert _folders(tmp_path, staging="/apps/staging", working="/working") == []
    working.chmod(0o777)
    (text,) = _folders(tmp_path, staging="/apps/staging", working="/working")
    assert f"the working folder {working} cannot be used: its permissions are 777, and must be 755" in text


def test_row_8_an_absent_working_folder_is_made_with_755_at_submission(tmp_path: Path, staging: Path) -> None:
    assert _folders(tmp_path, staging="/apps/staging") == []
    assert not (staging / "working").exists()
    assert _folders(tmp_path, prepare=True, staging="/apps/staging") == []
    assert (staging / "working").stat().st_mode & 0o777 == 0o755
    (staging / "working").chmod(0o700)
    assert len(_folders(tmp_path, prepare=True, staging="/apps/staging")) == 1


@pytest.mark.spark
@pytest.mark.server
def test_row_12_missing_tables_are_named_together_with_their_clusters(metastore_port: int, tmp_path: Path) -> None:
    catalog = Catalog(metastore_port)
    catalog.make_database("shop", tmp_path)
    catalog.make_table("shop", "orders", tmp_path / "orders", [("ds", "string")])
    catalog.make_table("shop", "countries", tmp_path / "countries", [])

    def feed(table: str, partition: str = "#ds=${YEAR}-${MONTH}-${DAY}-${HOUR}", **more: object) -> Bundle:
        address = f"catalog:shop:{table}{partition}"
        catalogs = {f"cluster {name}/catalog": f"thrift://127.0.0.1:{metastore_port}" for name in ("primary", "backup")}
        return bundle({**catalogs, "feed clicks/locations": REMOVED, "feed clicks/table": address, **more})

    clicks = ("feed", "clicks")
    assert _texts(feed("orders"), clicks) == []
    assert _texts(feed("countries"), clicks) == [
        f"feed 'clicks': the partition keys of shop.countries on {cluster} are none, but the feed names ds. "
        "Write catalog:shop:countries, without keys, and instances: current; or name a table that is PARTITIONED BY "
        "the keys."
        for cluster in ("primary", "backup")
    ]
    assert _texts(feed("orders", ""), clicks) == [
        f"feed 'clicks': the partition keys of shop.orders on {cluster} are ds, but the feed names none. "
        "Write catalog:shop:orders#ds=…, with variables of time in the values."
        for cluster in ("primary", "backup")
    ]
    both = {"feed clicks/clusters/backup/type": REMOVED}
    assert _texts(feed("customers", **both), clicks) == [
        "feed 'clicks': these tables do not exist: shop.customers on primary, shop.customers on backup. "
        "Create them in the catalog, or correct their names."
    ]
    assert _texts(feed("customers"), clicks) == [  # that of the target is made by copies
        "feed 'clicks': this table does not exist: shop.customers on primary. "
        "Create them in the catalog, or correct their names."
    ]
    archive = {"feed clicks/clusters/backup/table": "catalog:archive:orders#ds=${YEAR}-${MONTH}-${DAY}-${HOUR}"}
    assert _texts(feed("orders", **archive), clicks) == [_no_database("archive", "backup", "orders")]


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.parametrize("kind", ["hive", "iceberg"])
def test_a_database_in_which_instances_shall_be_registered_exists(
    metastore_port: int, tmp_path: Path, kind: str
) -> None:
    addresses = {"hive": f"thrift://127.0.0.1:{metastore_port}", "iceberg": f"iceberg+sqlite:///{tmp_path}/catalog.db"}
    (tmp_path / "catalog.db").touch()
    table = "catalog:nowhere:clicks#ds=${YEAR}-${MONTH}-${DAY}-${HOUR}"
    entities = bundle({"cluster primary/catalog": addresses[kind], "feed clicks/catalog_table": table})
    assert _texts(entities, ("feed", "clicks")) == [_no_database("nowhere", "primary", "clicks")]


def _no_database(name: str, cluster: str, table: str) -> str:
    return (
        f"feed 'clicks': there is no database '{name}' for {name}.{table} in the catalog of {cluster}. "
        "Create the database there, or correct its name."
    )


@pytest.fixture(scope="module")
def derby(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database `shop` that asks for a password, and a keystore that has it."""
    from feed_assets.engines.java.machine import JavaMachine

    folder = tmp_path_factory.mktemp("databases")
    with JavaMachine() as machine:
        make_database(machine, folder / "shop", {"me": "pass-word", "writer": "write-word"})
        make_keystore(machine, folder / "store.jceks", "shop", "pass-word")
    (folder / "password").write_text("pass-word\n")
    (folder / "empty").touch()
    return folder


def _datasource(folder: Path, changes: Mapping[str, Any]) -> list[str]:
    url = f"jdbc:derby:{folder}/shop"
    known = {
        "type": "generic",
        "interfaces": {"readonly": {"endpoint": url}, "write": {"endpoint": url}},
        "driver": {"class": DRIVER, "jars": [str(jar) for jar in DERBY_JARS]},
        "credential": {"user": "me", "password": "pass-word"},
    }
    entities = bundle({f"datasource shop/{path}": value for path, value in {**known, **changes}.items()})
    return _texts(entities, ("datasource", "shop"), root=folder)


@pytest.mark.parametrize(
    "credential",
    [
        {"user": "me", "password": "pass-word"},
        {"user": "me", "password_file": "password"},
        {"user": "me", "password_alias": {"alias": "shop", "provider": "store.jceks"}},
    ],
    ids=["text", "file", "alias"],
)
@pytest.mark.spark
def test_row_10_each_kind_of_credential_opens_a_connection(derby: Path, credential: dict[str, Any]) -> None:
    assert _datasource(derby, {"credential": credential}) == []


@pytest.mark.spark
def test_row_10_the_credential_of_an_interface_beats_the_default(derby: Path) -> None:
    url = f"jdbc:derby:{derby}/shop"
    right = {"readonly": {"endpoint": url, "credential": {"user": "writer", "password": "write-word"}}}
    assert _datasource(derby, {"interfaces": right, "credential": {"user": "me", "password": "wrong-one"}}) == []
    wrong = {"readonly": {"endpoint": url, "credential": {"user": "writer", "password": "wrong-one"}}}
    (text,) = _datasource(derby, {"interfaces": wrong})
    assert text.startswith("datasource 'shop': the readonly interface cannot be used: the database jdbc:derby:")
    assert "wrong-one" not in text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"credential": {"user": "me", "password": "wrong-one"}}, "it refuses the connection: .*authentication"),
        ({"driver": {"class": "a.B", "jars": [str(DERBY_JARS[0])]}}, "the driver a.B: it cannot be loaded"),
        ({"driver": {"class": DRIVER, "jars": ["nowhere.jar"]}}, "nowhere.jar: .*nowhere.jar is not a file"),
        ({"credential": {"user": "me", "password_file": "nowhere"}}, "nowhere is not a file"),
        ({"credential": {"user": "me", "password_file": "empty"}}, "the password file empty: it is empty"),
        (
            {"credential": {"user": "me", "password_alias": {"alias": "other", "provider": "store.jceks"}}},
            "it has no alias 'other'",
        ),
    ],
)
@pytest.mark.spark
def test_row_9_a_datasource_that_cannot_be_used_is_refused(derby: Path, changes: dict[str, Any], reason: str) -> None:
    url = f"jdbc:derby:{derby}/shop"
    (text,) = _datasource(derby, {"interfaces": {"readonly": {"endpoint": url}}, **changes})
    assert text.startswith("datasource 'shop': the readonly interface cannot be used: ")
    assert re.search(reason, text)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "__init__.py").touch()
    (tmp_path / "jobs" / "daily.py").write_text("raise SystemExit('imported')\n\ndef summarize(clicks):\n    pass\n")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("jobs.daily:summarize", None),
        ("jobs/daily.py:summarize", None),
        ("json:loads", "loads does not match the inputs"),
        ("jobs.daily:summarise", "daily.py has no function 'summarise'. Did you mean 'summarize'?"),
        ("jobs.weekly:summarize", "there is no module 'weekly' in jobs. Correct the path, or install the package"),
        ("nowhere.at.all:run", "there is no module 'nowhere' on the Python path or in "),
    ],
)
def test_row_20_a_function_that_is_not_there_is_refused_without_importing_it(
    project: Path, path: str, reason: str | None
) -> None:
    changed = bundle({"process daily/workflow/path": path})
    issues = check_code(changed, [DAILY], sources=SourceMap(), root=project, has_packages=True)
    assert all(issue.severity == "error" for issue in issues)
    assert len(issues) == (reason is not None)
    assert reason is None or reason in issues[0].render()


@pytest.mark.parametrize("engine", ["sql", "spark-submit"])
def test_row_20_a_workflow_at_a_url_that_is_not_there_is_refused(project: Path, engine: str) -> None:
    file = project / "daily.sql"
    path = file.as_uri() if engine == "sql" else "memory://jobs/daily.py"
    changes = {"process daily/workflow": {"engine": engine, "path": path}}
    (text,) = _texts(bundle(changes), DAILY, root=project)
    assert text == f"process 'daily': the file {path} does not exist. Correct the path, or put the file there."
    file.touch()
    if engine == "sql":
        assert _texts(bundle(changes), DAILY, root=project) == []


def test_a_mirror_whose_source_is_not_there_is_refused(project: Path) -> None:
    storages = {f"cluster {name}/storage": f"file://{project}/{name}" for name in ("primary", "backup")}
    changes = {**storages, **mirror({"directories": ["/models", "/tables"]}, f"file://{project}/file/models")}
    (project / "primary/models").mkdir(parents=True)
    (project / "file").touch()
    texts = _texts(bundle(changes), ("process", "models"), root=project)
    (missing,) = [text for text in texts if "does not exist" in text]
    unusable = [text for text in texts if text != missing]
    assert missing == (
        f"process 'models': the directory file://{project}/primary/tables does not exist. "
        "Correct the path, or check that it is mounted."
    )
    assert len(unusable) == 2
    assert all("cannot be used" in text and "Not a directory" in text for text in unusable)
    (project / "file").unlink()
    (project / "primary/tables").mkdir()
    assert _texts(bundle(changes), ("process", "models"), root=project) == []


def test_a_url_that_cannot_be_looked_at_from_here_is_a_warning(project: Path) -> None:
    changes = {"process daily/workflow": {"engine": "spark-submit", "path": "nosuch://host/daily.py"}}
    (issue,) = check_reachability(bundle(changes), [DAILY], sources=SourceMap(), root=project)
    assert (issue.severity, issue.code) == ("warning", "workflow-missing")


def test_issues_stand_where_the_address_is_written(tmp_path: Path) -> None:
    sources = SourceMap({CLUSTER: FieldSources(file="c.yaml", positions={(): (1, 1), ("spark",): (4, 1)})})
    entities = bundle({"cluster primary/storage": tmp_path.as_uri(), "cluster primary/spark/master": "yarn"})
    (issue,) = check_reachability(entities, [CLUSTER], sources=sources, root=tmp_path, environ={})
    assert issue.render().startswith("c.yaml:4: cluster 'primary': Spark cannot be used: Spark on YARN: ")


def test_validate_makes_live_checks_when_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "a.yaml").write_text(f"kind: cluster\nname: primary\nstorage: file://{tmp_path}/file\n")
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["validate", "a.yaml"]).exit_code == 0
    result = CliRunner().invoke(main, ["validate", "a.yaml", "--live"])
    assert result.exit_code == 1
    assert "a.yaml:3: cluster 'primary': the storage cannot be used: " in result.stdout


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://me:pass@localhost:1/db", "me:***@localhost:1/db: it cannot be used: connection"),
        ("sqlite:///{}/absent/state.db", "absent/state.db: it cannot be used: unable to open"),
        ("postgresql://me:pa@ss@localhost:1/db", "its address has a second '@'. Write %40 for each '@'"),
        ("sqlite:///{}/state.db", ""),
        ("", ""),
    ],
)
def test_validate_opens_the_state_that_a_command_would_and_makes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, said: str
) -> None:
    (tmp_path / "a.yaml").write_text(f"kind: cluster\nname: primary\nstorage: file://{tmp_path}/data\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setenv("FEED_ASSETS_STATE", url.format(tmp_path))
    result = CliRunner().invoke(main, ["validate", "a.yaml", "--live"])
    assert result.exit_code == (1 if said else 0), result.output
    assert said in result.stdout
    assert "ss@" not in result.stdout
    assert not (tmp_path / "state.db").exists()
    if said:
        assert result.stdout.splitlines()[0] in CliRunner().invoke(main, ["entity", "list"]).stderr
