"""New projects: the files of `templates` with the names of the project, written into a folder, all or none, and never
over a file. In a template `@{name}` stands for a value.
"""

import json
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import resources
from pathlib import Path
from string import Template

from feed_assets.command_lines import command_line
from feed_assets.context.errors import FolderNotEmptyError, ProjectNameError
from feed_assets.definitions.checks.declared_definitions import entity_schema
from feed_assets.errors import WrongUsageError
from feed_assets.scaffolding import checkouts
from feed_assets.scaffolding.checkouts import DAGSTER_YAML
from feed_assets.settings import ENV_FILE, FILE_NAME
from feed_assets.storage.errors import StoreUnknownError
from feed_assets.storage.registry import open_store

CLUSTER = "primary"
DAYS = 3
"""How many days of orders are in a new project: the days before the one on which it is made."""

SCHEMA_FILE = "entities.schema.json"
_PRODUCTS = ("coffee", "tea", "cocoa")
DATA = "data"
DELIVERY = "deliver_orders.py"
_REMOTE = "  # README.md says what .env and entities/cluster.yaml need"
LOCAL_STORAGE = "file://${DATA_ROOT}"
_SHOWN = 5
_S3 = (
    "# storage_options: {region: eu-central-1, endpoint_url: https://s3.example}\n",
    "The environment or `.env` needs the credentials: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, unless the\n"
    "machine has a role. The region, and the endpoint of a server of your own, are `storage_options` in\n"
    "`entities/cluster.yaml`.",
)
_HDFS = (
    '# storage_options: {dfs.replication: "2"}\n',
    "In the environment or `.env`, `HADOOP_CONF_DIR` is the folder of the `core-site.xml` and `hdfs-site.xml` of the\n"
    "cluster, and `HADOOP_USER_NAME` the user, unless Kerberos says it. Other properties of Hadoop are\n"
    "`storage_options` in `entities/cluster.yaml`.",
)
_OTHER = ("", "Its credentials are in the environment or `.env`, or `storage_options` in `entities/cluster.yaml`.")
_ACCESS = {"s3": _S3, "s3a": _S3, "hdfs": _HDFS, "viewfs": _HDFS}
"""By scheme, a comment on options for the cluster, and what the README says of access."""
_EXTRAS = {"s3": "s3", "s3a": "s3", "sftp": "sftp", "hdfs": "hdfs", "viewfs": "hdfs"}
_CLOUDS = {"gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs"}
"""The extra, or the package, by which a program writes into a storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewProject:
    """A project that was made or completed, or would be. `kept` are files that exist and stay as they are."""

    folder: Path
    name: str
    package: str
    files: tuple[str, ...]
    kept: tuple[str, ...]
    dry_run: bool
    here: bool = False
    has_data: bool = True

    @property
    def text(self) -> str:
        """The files and the next commands."""
        if self.here:
            verb = "would write" if self.dry_run else "wrote"
            written = "\n".join([f"{verb} what was missing in {self.folder}:", *(f"  {file}" for file in self.files)])
            written = written if self.files else f"nothing is missing in {self.folder}"
            told = f"{self.folder / DATA} does not exist: git holds no data. README.md says where a clone gets orders."
            return written if self.has_data else f"{written}\n{told}"
        lines = [f"{'would make' if self.dry_run else 'made'} the project {self.name} in {self.folder}:"]
        lines += [f"  {file}" for file in self.files]
        lines += [f"  {file} exists, and stays as it is" for file in self.kept]
        if "definitions.py" in self.kept:
            lines += [
                "",
                "Add the definitions of the feeds to yours:",
                "  defs = Definitions.merge(defs, build_definitions())",
            ]
        if not self.dry_run:
            is_remote = DELIVERY in (*self.files, *self.kept)
            lines += [
                "",
                "Now:",
                f"  cd {shlex.quote(str(self.folder))}",
                *([_REMOTE] if is_remote else []),
                f"  {command_line('validate', live=is_remote)}",
                *([f"  python {DELIVERY}"] if is_remote else []),
                "  dagster dev",
            ]
        return "\n".join(lines)


def make_project(
    folder: Path,
    as_of: datetime,
    *,
    name: str | None = None,
    storage: str | None = None,
    postgres: str | None = None,
    add: bool = False,
    dry_run: bool = False,
) -> NewProject:
    """Make a project. `name` is the folder's name by default. With `add`, files that exist are kept.

    Raises:
        WrongUsageError: the storage or the database has no such address.
        ProjectNameError: no Python package can have the name.
        FolderNotEmptyError: the folder has files, and `add` is not set. Nothing was written.
    """
    folder = folder.resolve()
    name = name or folder.name
    package = package_name(name)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", package):
        raise ProjectNameError(name=name)
    _require_empty(folder, is_adding=add)
    if storage is not None:
        _require_storage(storage)
    example = ExampleEntities(storage=storage or LOCAL_STORAGE, jobs=f"{package}.jobs", as_of=as_of)
    files = dict(iter_project_files(name, example, folder, postgres))
    kept = tuple(file for file in files if (folder / file).exists())
    new = {file: text for file, text in files.items() if file not in kept}
    if not dry_run:
        _write(folder, new)
    return NewProject(folder=folder, name=name, package=package, files=tuple(new), kept=kept, dry_run=dry_run)


def complete_project(folder: Path, *, postgres: str | None = None, dry_run: bool = False) -> NewProject:
    """Write what git does not hold of the project of a folder: the Dagster home, and the variables of `.env` that are
    lacking or name another place. All else in that file stays.

    Raises:
        WrongUsageError: the folder is in no project, or an address is lacking, wrong or not needed.
    """
    folder = checkouts.find_project(folder.resolve())
    file, given = folder / DAGSTER_YAML, read_dagster_yaml(is_postgres=postgres is not None)
    new = {} if file.exists() else {DAGSTER_YAML: given}
    values = checkouts.find_lacking_values(folder, postgres, given if new else file.read_text("utf-8"))
    if not dry_run:
        _write(folder, new)
        checkouts.write_env(folder, values)
    files = (*new, *([f"{ENV_FILE}: {', '.join(values)}"] if values else []))
    is_example = f"${{PROJECT_ROOT}}/{DATA}" in (folder / FILE_NAME).read_text("utf-8")
    return NewProject(
        folder=folder,
        name=folder.name,
        package="",
        files=files,
        kept=(),
        dry_run=dry_run,
        here=True,
        has_data=not is_example or (folder / DATA).exists(),
    )


def lay_example(folder: Path, module: str, data: Path, as_of: datetime) -> None:
    """Lay the example entities and their function into a folder, and their data into another one. Keeps files that
    exist.

    Args:
        folder: the folder of the function; the entities are in `entities` below it.
        module: the importable name of that folder.
        data: the storage of the cluster, `${DATA_ROOT}`.
        as_of: the data are those of the days before it.
    """
    example = ExampleEntities(storage=LOCAL_STORAGE, jobs=f"{module}.jobs", as_of=as_of)
    code = {f"entities/{file}": text for file, text in iter_entity_files(example, schema=None)}
    code["jobs.py"] = read_template("jobs.py")
    for place, files in ((folder, code), (data, dict(iter_data_files(example)))):
        _write(place, {file: text for file, text in files.items() if not (place / file).exists()})


def _require_empty(folder: Path, *, is_adding: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise FolderNotEmptyError(folder=folder, found=[])
    found = sorted(path.name for path in folder.iterdir() if path.name != ".git") if folder.exists() else []
    if found and not is_adding:
        raise FolderNotEmptyError(folder=folder, found=found[:_SHOWN])


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files into a folder beside their places, and then move each into its place."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".feed-assets-init-") as staging:
        for file, text in files.items():
            staged = Path(staging) / file
            staged.parent.mkdir(parents=True, exist_ok=True)
            staged.touch(mode=0o600 if file == ENV_FILE else 0o666)
            staged.write_text(text, "utf-8")
        for file in files:
            place = folder / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.hardlink_to(Path(staging) / file)  # fails if the place is taken meanwhile


class _Text(Template):
    delimiter = "@"


def _require_storage(storage: str) -> None:
    """Raises WrongUsageError if nothing can be stored there."""
    if "://" not in storage:
        raise WrongUsageError(
            f"--storage {storage} has no scheme. Write file://{Path(storage).resolve()} for a folder of this machine, "
            f"or s3://{storage.strip('/')} for a bucket."
        )
    if "${" not in storage:
        try:
            open_store(storage, {})
        except StoreUnknownError as exc:
            raise WrongUsageError(f"--storage {exc}") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleEntities:
    """The choices of the example entities.

    `storage` is the storage URL of the cluster. `jobs` is the importable module of the process's function. The data
    are those of the days before `as_of`.
    """

    storage: str
    jobs: str
    as_of: datetime

    @property
    def is_local(self) -> bool:
        """Whether the instances are stored on disks."""
        return self.storage.startswith("file://")

    @property
    def access(self) -> tuple[str, str]:
        return _ACCESS.get(self.storage.partition("://")[0], ("", "") if self.is_local else _OTHER)

    @property
    def days(self) -> list[str]:
        """The days whose orders have arrived, oldest first, as in `2013-11-03`."""
        return [f"{self.as_of - timedelta(days=back):%Y-%m-%d}" for back in range(DAYS, 0, -1)]


def iter_entity_files(example: ExampleEntities, schema: str | None) -> Iterator[tuple[str, str]]:
    """Yield the entity files, by name. `schema` is the path of the schema for editors, from the folder of the files."""
    values = {
        "cluster": CLUSTER,
        "storage": example.storage,
        "data": "local files" if example.is_local else f"data in {example.storage}",
        "options": example.access[0],
        "jobs": example.jobs,
        "start": f"{example.days[0]}T00:00Z",
        "schema": schema or "",
    }
    for name in ("cluster.yaml", "orders.yaml", "daily_revenue.yaml"):
        text = read_template(name, values)
        yield name, text if schema else text.partition("\n")[2]


def iter_data_files(example: ExampleEntities) -> Iterator[tuple[str, str]]:
    """Yield the orders of some days, by path below the storage of the cluster."""
    for number, day in enumerate(example.days):
        yield f"orders/{day}/orders.csv", _orders(number)
        yield f"orders/{day}/_SUCCESS", ""


def iter_project_files(
    name: str, example: ExampleEntities, folder: Path, postgres: str | None = None
) -> Iterator[tuple[str, str]]:
    """Yield every file of a project, by path below its folder.

    Args:
        name: the name of the project.
        example: the choices of the example entities.
        folder: the absolute path of the project.
        postgres: the URL of the database of Dagster and of feed-assets; None means SQLite.

    Raises:
        WrongUsageError: `postgres` cannot be kept.
    """
    scheme = example.storage.partition("://")[0]
    extra, cloud = _EXTRAS.get(scheme), _CLOUDS.get(scheme)
    needed = [f"feed-assets[{extra}]" if extra else "feed-assets", *([cloud] if cloud else [])]
    package = package_name(name)
    values = {
        "distribution": name,
        "package": package,
        "today": f"{example.as_of:%Y-%m-%d}",
        "yesterday": example.days[-1],
        "start": f"{example.days[0]}T00:00Z",
        "end": f"{example.days[1]}T00:00Z",
        "extras": ",".join(filter(None, [extra, "server"])),
        "dependencies": ", ".join(f'"{each}"' for each in needed),
        "storage": example.storage,
        "access": example.access[1],
        "postgres": " --postgres URL" if postgres else "",
        "data": "the storage of the cluster" if example.is_local else f"the example; the storage is {example.storage}",
    }
    values["demo"] = read_template("README_local.md" if example.is_local else "README_remote.md", values)
    if not example.is_local:
        yield DELIVERY, read_template(DELIVERY)
    for file in ("README.md", "pyproject.toml", "definitions.py", "feed_assets.yaml"):
        yield file, read_template(file, values)
    yield f"{package}/__init__.py", read_template("package_init.py", values)
    yield f"{package}/jobs.py", read_template("jobs.py")
    for file, text in iter_entity_files(example, f"../{SCHEMA_FILE}"):
        yield f"entities/{file}", text
    yield SCHEMA_FILE, json.dumps(entity_schema(), indent=2) + "\n"
    yield ".vscode/settings.json", read_template("vscode_settings.json", {"schema": SCHEMA_FILE})
    yield "tests/test_daily_revenue.py", read_template("test_daily_revenue.py", values)
    yield ".gitignore", read_template("gitignore")
    yield ENV_FILE, checkouts.render_env(checkouts.env_values(folder, postgres))
    yield DAGSTER_YAML, read_dagster_yaml(is_postgres=postgres is not None)
    for file, text in iter_data_files(example):
        yield f"{DATA}/{file}", text


def read_dagster_yaml(*, is_postgres: bool) -> str:
    """Return the dagster.yaml of a Dagster home on SQLite or on PostgreSQL."""
    return read_template("dagster_postgres.yaml" if is_postgres else "dagster_sqlite.yaml")


def read_template(name: str, values: dict[str, str] | None = None) -> str:
    """Return the text of a template; without values it is returned as it is."""
    text = (resources.files(__package__) / "templates" / f"{name}.template").read_text("utf-8")
    return text if values is None else _Text(text).substitute(values)


def package_name(name: str) -> str:
    """Return the name of a project's Python package.

    >>> package_name("Web-shop 2")
    'web_shop_2'
    """
    return re.sub(r"\W+", "_", name).strip("_").lower()  # "Web-shop 2" → "web_shop_2"


def _orders(number: int) -> str:
    """Return a day's orders as CSV; every day has other ones."""
    lines = ["order_id,product,quantity,price"]
    for order in range(1, 9 + number):
        product = _PRODUCTS[(order + number) % len(_PRODUCTS)]
        lines.append(f"{1000 * (number + 1) + order},{product},{1 + (order * 7 + number) % 4},{2 + order % 3}.50")
    return "\n".join(lines) + "\n"
