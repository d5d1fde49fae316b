"""Reachability of everything that entities name: the live checks, one function each, with the services that they open
once (a Java machine, catalogs, fetched files), and their table, run in parallel with a deadline.

Nothing is changed, except that a submission makes the absent working folder of a cluster.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from feed_assets.definitions.checks.work_folders import find_folder, find_folder_fault
from feed_assets.engines.errors import ServiceError
from feed_assets.engines.spark.addresses import check_spark_master, check_spark_remote
from feed_assets.engines.workflow.files import check_url
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.cluster import Cluster, InterfaceType
from feed_assets.entities.common import Kind
from feed_assets.entities.datasource import DatabaseInterface, Datasource
from feed_assets.entities.feed import Feed, find_targets
from feed_assets.entities.graph import iter_datasources
from feed_assets.entities.locations.overlaps import MirrorLocation, iter_mirror_locations
from feed_assets.entities.process import Process, iter_workflows
from feed_assets.errors import FeedAssetsError, NoAnswerError, SettingsError
from feed_assets.issues import EntityKey, FieldPath, Issue, Severity, SourceMap, order_of, split_error
from feed_assets.patience import Patience
from feed_assets.plan.compile import compile_mirror
from feed_assets.plan.compile_transfers import compile_target
from feed_assets.plan.copy_records import Directory
from feed_assets.plan.transfers import ExportRecord
from feed_assets.settings import Settings
from feed_assets.sql.dagster_home import find_state
from feed_assets.sql.database import open_database
from feed_assets.sql.errors import StateError
from feed_assets.storage.errors import StorageError, StoreUnknownError
from feed_assets.storage.iceberg.catalogs import LakeCatalog, open_catalog
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Availability
from feed_assets.storage.registry import open_metastore, open_store
from feed_assets.timing.dates import NEVER
from feed_assets.timing.errors import TableAddressError
from feed_assets.timing.templates import TableAddress, parse_table_address
from feed_assets.validation.processes.process import iter_files
from feed_assets.validation.scope import Complaint

if TYPE_CHECKING:
    from feed_assets.engines.java.machine import JavaMachine
    from feed_assets.storage.table.metastore import Metastore


_JAVA = "java"


class Outside:
    """The services of one round of checks; `close` ends the started ones. It is thread-safe. `root` is the project's
    folder. With `prepares`, absent optional folders are made.
    """

    def __init__(self, bundle: Bundle, *, root: Path, environ: Mapping[str, str], prepares: bool) -> None:
        self.bundle = bundle
        self.root = root
        self.environ = environ
        self.prepares = prepares
        self._services: dict[str, Future[Any]] = {}
        self._lock = Lock()

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what is made on first use; later callers get the same value, or the same error."""
        with self._lock:
            is_first = name not in self._services
            made = self._services.setdefault(name, Future())
        if is_first:
            try:
                made.set_result(make())
            except BaseException as exc:  # noqa: BLE001 - raised below, in each thread that asks
                made.set_exception(exc)
        return made.result()

    def java(self) -> "JavaMachine":
        """Return the Java machine. Raises ServiceError if it cannot be started."""
        from feed_assets.engines.java.machine import JavaMachine

        machine: JavaMachine = self._once(_JAVA, JavaMachine)
        return machine

    def catalog(self, cluster: Cluster) -> "Metastore | LakeCatalog":
        """Return the catalog of a cluster. Raises StorageError if it does not answer."""
        assert cluster.catalog is not None
        key = f"{cluster.name} {cluster.catalog}" if cluster.is_lake else cluster.catalog
        catalog: Metastore | LakeCatalog = self._once(f"catalog {key}", partial(_open_catalog, cluster))
        return catalog

    def close(self) -> None:
        """End the started services."""
        made = self._services.get(_JAVA)
        if made is not None and made.done() and made.exception() is None:
            made.result().close()


def _open_catalog(cluster: Cluster) -> "Metastore | LakeCatalog":
    assert cluster.catalog is not None
    catalog: Metastore | LakeCatalog = (
        open_catalog(cluster.catalog, cluster.catalog_options, cluster.storage, cluster.storage_options)
        if cluster.is_lake
        else open_metastore(cluster.catalog)
    )
    catalog.check()
    return catalog


_STAGING_MODE, _WORKING_MODE = 0o777, 0o755


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One question to the outside: the field it is about, its description, and a function that returns complaints, if
    it has any. `ask` may raise any error of the project, which is reported as a complaint at `path`.
    """

    path: FieldPath
    what: str
    ask: Callable[[], Iterable[Complaint] | None]


def check_storage(_: Outside, cluster: Cluster) -> Iterator[Probe]:
    """C4: the root of the storage exists, or can be made."""
    write = cluster.interfaces.get(InterfaceType.WRITE)
    is_interface = write is not None and write.endpoint == cluster.storage
    path: FieldPath = ("interfaces", "write", "endpoint") if is_interface else ("storage",)

    def ask() -> None:
        open_store(cluster.storage, cluster.storage_options).check_root()

    yield Probe(path=path, what="the write interface" if is_interface else "the storage", ask=ask)


def check_folders(outside: Outside, cluster: Cluster) -> Iterator[Probe]:
    """C10, C11: staging exists with mode 777, working with 755; a submission makes an absent working folder.

    Differs from Falcon: the owner is not checked, and only folders of this machine and of HDFS are.
    """
    staging = cluster.locations.staging
    if staging is not None:
        yield Probe(
            path=("locations", "staging"),
            what="the staging folder",
            ask=partial(_ask_folders, outside, cluster, staging),
        )


def _ask_folders(outside: Outside, cluster: Cluster, staging: str) -> Iterator[Complaint]:
    folder = find_folder(cluster, staging)
    fault = None if folder is None else find_folder_fault(folder, _STAGING_MODE)
    if folder is not None and fault is not None:
        yield Complaint(
            path=("locations", "staging"),
            message=f"the staging folder {folder} cannot be used: {fault}",
            remedy=f"Create it, and set its permissions: chmod {_STAGING_MODE:o} {folder}.",
        )
        return
    named = cluster.locations.working
    working = find_folder(cluster, named or f"{staging.rstrip('/')}/working")
    if working is None:
        return
    if named is None and not working.exists():
        if outside.prepares:
            with suppress(FileExistsError):  # another submission has made it
                working.mkdir()
                working.chmod(_WORKING_MODE)
        return
    fault = find_folder_fault(working, _WORKING_MODE)
    if fault is not None:
        yield Complaint(
            path=("locations", "working" if named else "staging"),
            message=f"the working folder {working} cannot be used: {fault}",
            remedy=f"Create it, and set its permissions: chmod {_WORKING_MODE:o} {working}.",
        )


def check_spark(outside: Outside, cluster: Cluster) -> Iterator[Probe]:
    """C5, C14: the hosts of Spark answer, and a Spark Connect server responds."""
    execute = cluster.interfaces.get(InterfaceType.EXECUTE)
    master, remote = cluster.spark.master, cluster.spark.remote

    def ask() -> None:
        if remote is not None:
            check_spark_remote(remote)
        elif master is not None:
            check_spark_master(master, outside.environ, execute.endpoint if execute else None)

    yield Probe(path=("spark",), what="Spark", ask=ask)


def check_drivers(outside: Outside, cluster: Cluster) -> Iterator[Probe]:
    """A Spark Connect server that is not ours can have the drivers of the datasources that feeds there name."""
    if cluster.spark.remote is None:
        return
    named = {name for feed in outside.bundle.feeds for on, name in iter_datasources(feed) if on == cluster.name}
    for datasource in filter(None, map(outside.bundle.find_datasource, sorted(named))):
        for interface in {each.driver: each for _, each in datasource.usable_interfaces}.values():
            yield Probe(
                path=("spark", "remote"),
                what=f"the driver of datasource {datasource.name!r}",
                ask=partial(_ask_driver, outside, cluster.spark.remote, datasource, interface),
            )


def _ask_driver(outside: Outside, remote: str, datasource: Datasource, interface: DatabaseInterface) -> None:
    from feed_assets.engines.databases.credentials import open_address
    from feed_assets.engines.databases.sessions import check_remote_driver

    check_spark_remote(remote)
    check_remote_driver(remote, open_address(datasource, interface, root=outside.root, java=outside.java))


def check_catalog(outside: Outside, cluster: Cluster) -> Iterator[Probe]:
    """C8: the catalog answers."""
    if cluster.catalog is None:
        return

    def ask() -> None:
        outside.catalog(cluster)

    yield Probe(path=("catalog",), what="its catalog", ask=ask)


def check_tables(outside: Outside, feed: Feed) -> Iterator[Probe]:
    """F18: the tables of a feed exist; missing ones are reported together, but for those that copies make."""
    tables = {name: table for name in feed.clusters if (table := feed.table_on(name)) is not None}
    if tables:
        own = feed.clusters[next(iter(tables))].table is not None
        path: FieldPath = ("clusters", next(iter(tables)), "table") if own else ("table",)
        yield Probe(path=path, what="the tables", ask=partial(_ask_tables, outside, tables, path, find_targets(feed)))


def _ask_tables(
    outside: Outside, tables: Mapping[str, str], path: FieldPath, made: Collection[str]
) -> Iterator[Complaint]:
    lacking: list[str] = []
    for name, text in tables.items():
        cluster = outside.bundle.find_cluster(name)
        if cluster is None or cluster.catalog is None:
            continue
        try:
            table = parse_table_address(text)
            keys = outside.catalog(cluster).find_keys(table.database, table.table)
            if keys is None and name in made:
                yield from _ask_namespace(outside, cluster, table, path)
                continue
            if keys is None:
                lacking.append(f"{table.name} on {name}")
            elif {key.lower() for key in keys} != {key.lower() for key, _ in table.partition}:
                yield _wrong_keys(path, name, table, keys)
        except TableAddressError:
            continue
        except (ServiceError, StorageError) as exc:
            told = split_error(exc)
            yield Complaint(
                path=path, message=f"its table on {name} cannot be checked: {told.message}", remedy=told.remedy
            )
    if lacking:
        yield Complaint(
            path=path,
            message=f"{'these tables do' if len(lacking) > 1 else 'this table does'} not exist: {', '.join(lacking)}",
            remedy="Create them in the catalog, or correct their names.",
        )


def check_exports(outside: Outside, feed: Feed) -> Iterator[Probe]:
    """The table of an export exists, with the unique key and the column of the instance that it needs."""
    for name in feed.clusters:
        declared = feed.export_on(name)
        datasource = None if declared is None else outside.bundle.find_datasource(declared.target.name)
        if declared is not None and datasource is not None and datasource.write is not None:
            ask = partial(_ask_export, outside, feed, compile_target(feed, declared), datasource)
            yield Probe(path=("clusters", name, "export", "target"), what=f"table {declared.target.table}", ask=ask)


def _ask_export(outside: Outside, feed: Feed, export: ExportRecord, datasource: Datasource) -> None:
    from feed_assets.engines.databases.credentials import open_interface
    from feed_assets.engines.databases.export_columns import ExportColumns

    with open_interface(datasource, datasource.write, outside.root, outside.java) as connection:
        columns = ExportColumns.of(connection, export, ZoneInfo(datasource.timezone))
        columns.find_instance(NEVER, ZoneInfo(feed.timezone))
        columns.find_key(connection.unique_keys(export.target.table), [each.name for each in columns.table])


def check_registered_tables(outside: Outside, feed: Feed) -> Iterator[Probe]:
    """A table in which instances are partitions, too, can be made: its database exists."""
    for name in feed.clusters:
        cluster = outside.bundle.find_cluster(name)
        text = None if cluster is None else feed.catalog_table_on(cluster)
        with suppress(TableAddressError):
            if cluster is not None and text is not None:
                path: FieldPath = ("catalog_table",) if feed.catalog_table is not None else ("clusters", name)
                ask = partial(_ask_namespace, outside, cluster, parse_table_address(text), path)
                yield Probe(path=path, what=f"the database of its table on {name}", ask=ask)


def _ask_namespace(outside: Outside, cluster: Cluster, table: TableAddress, path: FieldPath) -> Iterator[Complaint]:
    if not outside.catalog(cluster).has_database(table.database):
        message = f"there is no database {table.database!r} for {table.name} in the catalog of {cluster.name}"
        yield Complaint(path=path, message=message, remedy="Create the database there, or correct its name.")


def _wrong_keys(path: FieldPath, cluster: str, table: TableAddress, keys: Sequence[str]) -> Complaint:
    form = f"catalog:{table.database}:{table.table}"
    if keys:
        remedy = f"Write {form}#{';'.join(f'{key}=…' for key in keys)}, with variables of time in the values."
    else:
        remedy = f"Write {form}, without keys, and instances: current; or name a table that is PARTITIONED BY the keys."
    return Complaint(
        path=path,
        message=f"the partition keys of {table.name} on {cluster} are {', '.join(keys) or 'none'}, "
        f"but the feed names {', '.join(key for key, _ in table.partition) or 'none'}",
        remedy=remedy,
    )


def check_workflows(outside: Outside, process: Process) -> Iterator[Probe]:
    """P4: workflow files given as URLs exist."""
    for path, workflow in iter_workflows(process):
        for place, name in iter_files(workflow):
            if "://" in name:
                ask = partial(_ask_url, outside, process, (*path, *place), name)
                yield Probe(path=(*path, *place), what=name, ask=ask)


def check_mirrors(outside: Outside, process: Process) -> Iterator[Probe]:
    """The directories that a mirror reads exist, and the storages of its targets are usable."""
    written = process.workflow.mirror
    if written is None:
        return
    for name in process.clusters:
        places = [place for place in iter_mirror_locations(outside.bundle.find_cluster, process) if place.own == name]
        if not places or any(place.fault is not None for place in places):
            continue
        mirror = compile_mirror(outside.bundle, written, name)
        sources = [place for place in places if not place.is_target]
        for place, (source, target) in zip(sources, mirror.directories, strict=True):
            yield Probe(path=place.path, what=place.text, ask=partial(_ask_directory, place, source))
            yield Probe(
                path=("workflow", "mirror", "target", "directory"), what=target.url, ask=partial(_ask_root, target)
            )


def _ask_directory(place: MirrorLocation, source: Directory) -> Iterator[Complaint]:
    store = StorePool().get(source.store)
    yield from _ask_look(place.path, store, source.path, f"directory {source.url}", "check that it is mounted")


def _ask_look(path: FieldPath, store: InstanceStore, at: str, what: str, or_else: str) -> Iterator[Complaint]:
    (look,) = store.look([at], None)
    if look.availability is Availability.MISSING:
        yield Complaint(path=path, message=f"the {what} does not exist", remedy=f"Correct the path, or {or_else}.")
    elif look.obstacle is not None:
        remedy = f"Correct the path, or the rights of the {what.partition(' ')[0]}."
        yield Complaint(path=path, message=f"the {what} cannot be read: {look.obstacle}", remedy=remedy)


def _ask_root(target: Directory) -> None:
    StorePool().get(target.store).check_root()


def _ask_url(outside: Outside, process: Process, path: FieldPath, url: str) -> Iterator[Complaint]:
    scheme, folder = url.partition("://")[0], url.rpartition("/")[0]
    clusters = [found for name in process.clusters if (found := outside.bundle.find_cluster(name)) is not None]
    alike = next((cluster for cluster in clusters if cluster.storage.startswith(f"{scheme}://")), None)
    try:
        store = open_store(folder, alike.storage_options if alike else {})
    except StoreUnknownError:
        yield from _ask_fsspec(path, url)
        return
    yield from _ask_look(path, store, url.rpartition("/")[2], f"file {url}", "put the file there")


def _ask_fsspec(path: FieldPath, url: str) -> Iterator[Complaint]:
    try:
        check_url(url, {})
    except ServiceError as exc:
        is_missing = exc.__cause__ is None
        yield Complaint(
            path=path,
            message=f"{exc.service}: {exc.reason}",
            remedy=exc.next_step,
            severity=Severity.ERROR if is_missing else Severity.WARNING,
        )


def check_database(outside: Outside, datasource: Datasource) -> Iterator[Probe]:
    """For each interface of a datasource, the driver loads, the credential is complete, and a connection opens."""
    for name, interface in datasource.usable_interfaces:
        yield Probe(
            path=("interfaces", name),
            what=f"the {name} interface",
            ask=partial(_ask_database, outside, datasource, interface),
        )


def _ask_database(outside: Outside, datasource: Datasource, interface: DatabaseInterface) -> None:
    from feed_assets.engines.databases.credentials import open_interface

    with open_interface(datasource, interface, outside.root, outside.java):
        pass


def check_state(settings: Settings, environ: Mapping[str, str]) -> list[Issue]:
    """Connect to the state database that settings or the Dagster home name, and make nothing in it."""
    try:
        if (url := find_state(settings, environ)) is not None:
            with closing(open_database(url, settings.namespace)) as database:
                database.check()
    except (SettingsError, StateError) as exc:
        told = split_error(exc)
        issue = Issue(
            severity=Severity.ERROR, code="state-unreachable", entity=None, message=told.message, remedy=told.remedy
        )
        return [issue]
    return []


SECONDS = 30.0
"""The time limit of a check. Starting Java on a cold and busy machine alone can take ten seconds."""
AT_ONCE = 16
"""The number of checks that run at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCheck:
    """One check: its code, its kind of entity, and the function that yields the probes of an entity."""

    code: str
    kind: Kind
    probes: Callable[[Outside, Any], Iterator[Probe]]


LIVE_CHECKS: tuple[LiveCheck, ...] = (
    LiveCheck(code="storage-unreachable", kind=Kind.CLUSTER, probes=check_storage),
    LiveCheck(code="work-folder", kind=Kind.CLUSTER, probes=check_folders),
    LiveCheck(code="spark-unreachable", kind=Kind.CLUSTER, probes=check_spark),
    LiveCheck(code="driver-missing", kind=Kind.CLUSTER, probes=check_drivers),
    LiveCheck(code="catalog-unreachable", kind=Kind.CLUSTER, probes=check_catalog),
    LiveCheck(code="database-unreachable", kind=Kind.DATASOURCE, probes=check_database),
    LiveCheck(code="table-missing", kind=Kind.FEED, probes=check_tables),
    LiveCheck(code="export-table", kind=Kind.FEED, probes=check_exports),
    LiveCheck(code="catalog-database-missing", kind=Kind.FEED, probes=check_registered_tables),
    LiveCheck(code="workflow-missing", kind=Kind.PROCESS, probes=check_workflows),
    LiveCheck(code="mirror-unreachable", kind=Kind.PROCESS, probes=check_mirrors),
)


def check_reachability(
    bundle: Bundle,
    keys: Collection[EntityKey] | None = None,
    *,
    sources: SourceMap,
    root: Path,
    environ: Mapping[str, str] | None = None,
    prepare: bool = False,
    seconds: float = SECONDS,
) -> list[Issue]:
    """Apply the live checks. Issues are ordered by file and line.

    Args:
        bundle: all entities; the checked ones may refer to the others.
        keys: the entities to check; None for all.
        sources: the files and lines of the entities.
        root: the project's folder, for relative paths.
        environ: the environment; the process's own if None.
        prepare: make the absent working folder of a cluster, as a submission does.
        seconds: the time limit of a check; after that it has failed.
    """
    environ = os.environ if environ is None else environ
    outside = Outside(bundle, root=root, environ=environ, prepares=prepare)
    try:
        entities = [entity for entity in bundle.entities if keys is None or entity.key in keys]
        tasks = iter(
            [
                _Task(check, entity, probe)
                for entity in entities
                for check in LIVE_CHECKS
                if check.kind is entity.kind
                for probe in check.probes(outside, entity)
            ]
        )
        issues: list[Issue] = []
        while batch := list(islice(tasks, AT_ONCE)):
            for task, complaints in _run(batch, seconds):
                issues.extend(_issue(task, complaint, sources) for complaint in complaints)
    finally:
        outside.close()
    return sorted(issues, key=order_of)


class _Task(NamedTuple):
    check: LiveCheck
    entity: AnyEntity
    probe: Probe

    def ask(self) -> list[Complaint]:
        return list(self.probe.ask() or ())


def _run(tasks: Sequence[_Task], seconds: float) -> Iterator[tuple[_Task, Sequence[Complaint]]]:
    calls = {f"{task.probe.what} of {task.entity.label} ({at})": task.ask for at, task in enumerate(tasks)}
    answers = Patience(seconds).ask(calls)
    for task, endpoint in zip(tasks, calls, strict=True):
        yield task, _complaints_of(task.probe, answers[endpoint].value, seconds)


def _complaints_of(probe: Probe, answer: list[Complaint] | Exception, seconds: float) -> Sequence[Complaint]:
    match answer:
        case NoAnswerError():
            reason, remedy = f"no answer within {seconds:g} seconds", "Check that it runs and can be reached."
        case FeedAssetsError():
            finding = split_error(answer)
            reason, remedy = finding.message, finding.remedy
        case OSError():
            reason, remedy = str(answer), "Check that it exists, and that this user may use it."
        case Exception():
            raise answer
        case _:
            return answer
    return [Complaint(path=probe.path, message=f"{probe.what} cannot be used: {reason}", remedy=remedy)]


def _issue(task: _Task, complaint: Complaint, sources: SourceMap) -> Issue:
    return Issue(
        severity=complaint.severity,
        code=task.check.code,
        entity=task.entity.label,
        message=complaint.message,
        remedy=complaint.remedy,
        source=complaint.source or sources.locate(task.entity.key, complaint.path),
    )
