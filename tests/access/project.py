"""A project of several people, which a guarded server serves: `etl` are Ann's group, wheel the superusers'."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from feed_assets.clock import open_clock
from feed_assets.operation import Does, Operation
from feed_assets.server.application import build_application
from feed_assets.server.guard import Guard
from feed_assets.server.identity.callers import Keeper
from feed_assets.server.identity.tokens import create_token
from feed_assets.server.records import Address
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database, open_database
from tests.cli.project import must
from tests.definitions.extensions.samples import files_of, lay
from tests.projects import be, declare, enter
from tests.server.project import listen

PEOPLE = {"super": ("wheel",), "adm": (), "ann": (), "gus": ("etl",), "bob": ("ops",)}
"""A superuser by the group, an admin, the owner, one of the group, and another."""
PUBLIC = {"owner": "ann", "group": "etl"}
HIDDEN = {**PUBLIC, "permission": "0x750"}
START = "2026-01-01T00:00Z"
_VALIDITY = {"validity": {"start": START, "end": "2026-01-02T00:00Z"}}
NAMES = {
    "cluster": ("there", "zqcluster"),
    "datasource": ("shop", "zqsource"),
    "feed": ("clicks", "zqfeed"),
    "process": ("counts", "zqprocess"),
    "copy": ("clicks@here", "zqfeed@here"),
    "job": ("shown", "zqjob"),
    "hold": ("shownhold", "zqhold"),
}
"""By kind an entity that everybody reads, and one that is hidden from others; all are Ann's."""
BEHALF = ("ann via portal", "bob via portal", "super via portal", "ann via adm")
"""On whose behalf somebody asks: the latter two may not."""
KEEPER, EXTENSION = "keeper", "one-feed"
_RECIPE = "name: one-feed\nparameters: {name: {}, permission: {}, description: {default: none}}\n"
_FEED = """\
kind: feed
name: ${param.name}
description: ${param.description}
frequency: hours(1)
clusters: {here: {validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
locations: {data: "/${param.name}/${YEAR}-${MONTH}-${DAY}-${HOUR}"}
acl: {owner: ann, group: etl, permission: "${param.permission}"}
"""


def cluster(folder: Path, name: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "cluster", "name": name, "storage": f"file://{folder}/data/{name}", **fields}


def feed(name: str, *targets: str, **fields: Any) -> dict[str, Any]:
    clusters = {"here": _VALIDITY | {"type": "source"}, **{each: _VALIDITY | {"type": "target"} for each in targets}}
    of = {"kind": "feed", "name": name, "frequency": "hours(1)", "clusters": clusters}
    return {**of, "locations": {"data": f"/{name}/${{YEAR}}-${{MONTH}}-${{DAY}}-${{HOUR}}"}, **fields}


def process(name: str, reads: str, writes: str, **fields: Any) -> dict[str, Any]:
    return {
        "kind": "process",
        "name": name,
        "frequency": "hours(1)",
        "clusters": {"here": _VALIDITY},
        "inputs": {"a": {"feed": reads, "start": "now(0,0)", "end": "now(0,0)"}},
        "outputs": {"b": {"feed": writes, "instance": "now(0,0)"}},
        "workflow": {"engine": "sql", "path": "count.sql"},
        **fields,
    }


def source(name: str, **fields: Any) -> dict[str, Any]:
    of = {
        "kind": "datasource",
        "name": name,
        "type": "postgres",
        "driver": {"class": "org.postgresql.Driver", "jars": ["x.jar"]},
    }
    credential = {"user": "u", "password_file": "x.password"}
    interfaces = {"readonly": {"endpoint": "jdbc:postgresql://127.0.0.1:1/shop", "credential": credential}}
    return {**of, "interfaces": interfaces, **fields}


def entities(folder: Path) -> list[dict[str, Any]]:
    return [
        cluster(folder, "here"),
        cluster(folder, "there", acl=PUBLIC),
        cluster(folder, "zqcluster", acl=HIDDEN),
        source("shop", acl=PUBLIC),
        source("zqsource", acl=HIDDEN),
        feed("nobodys"),
        feed("clicks", "there", acl=PUBLIC),
        feed("zqfeed", "there", acl=HIDDEN, tags={"zqtag": "x"}),
        feed("totals", acl=PUBLIC),
        feed("counts", acl=HIDDEN),
        feed("zqtotals", acl=HIDDEN),
        process("counts", "zqfeed", "totals", acl=PUBLIC),
        process("zqprocess", "clicks", "zqtotals", acl=HIDDEN),
    ]


@dataclass
class Served:
    """A server, its database, and the clients of people; `nobody` has none."""

    database: Database
    url: str
    clients: Mapping[str, requests.Session]

    def get(self, who: str, path: str, **given: Any) -> requests.Response:
        return self.clients[who].get(f"{self.url}{path}", timeout=60, **given)

    def ask(self, who: str, operation: Operation, given: Mapping[str, Any]) -> requests.Response:
        if operation.method == "GET":
            return self.get(who, operation.path, params=given)
        return self.clients[who].post(f"{self.url}{operation.path}", json=given, timeout=60)


@contextmanager
def served(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Served]:
    enter(folder, patch)
    patch.delenv("FEED_ASSETS_AUTHOR")
    be(KEEPER, patch)
    access = {"superuser_group": "wheel", "superusers": [KEEPER], "admins": ["adm"]}
    allowed = {"portal": {"hosts": ["127.0.0.1"], "users": ["ann", "bob"]}}
    (folder / "count.sql").write_text("select 1 as n")
    others: dict[str, Any] = {"access": access, "server": {"proxy_users": allowed}, "actions": "off"}
    declare(folder, *entities(folder), authorization="acl", **others)
    settings = load_settings()
    assert settings.state is not None
    database = open_database(settings.state, settings.namespace)
    keeper = Keeper(settings, database, Address(host="127.0.0.1", port=0), "host")
    now, until = open_clock(settings).now(), open_clock(settings).now() + timedelta(days=1)
    with listen(Guard(build_application(settings, database), keeper)) as url:
        clients = {"nobody": requests.Session()}
        for name, groups in {**PEOPLE, "portal": (), "reader": ("etl",)}.items():
            may = [Does.READS] if name == "reader" else [*Does]
            made = create_token(database, name, may, until, groups, author="x", now=now, dry_run=False)
            clients[name] = requests.Session()
            clients[name].headers["Authorization"] = f"Bearer {made.bearer}"
        for who in BEHALF:
            name, _, asker = who.partition(" via ")
            clients[who] = requests.Session()
            clients[who].headers, clients[who].params = clients[asker].headers, {"doAs": name}
        yield Served(database, url, clients)
        for each in clients.values():
            each.close()
    database.close()


def read_files(folder: Path) -> dict[Path, str]:
    """The definitions of a project."""
    return {path: path.read_text() for path in (folder / "entities").rglob("*.yaml")}


def restore(folder: Path, files: Mapping[Path, str]) -> None:
    """Let the definitions be what they were."""
    found = read_files(folder)
    for path in found.keys() - files.keys():
        path.unlink()
    for path, text in files.items():
        if found.get(path) != text:
            path.write_text(text)


def submit_jobs(folder: Path) -> None:
    """Let an extension be known, a job of each kind be there, and holds."""
    for name, feed in zip(NAMES["hold"], NAMES["feed"], strict=True):
        must("hold", "add", name, "--feed", feed, "--reason", "audit")
    must("extension", "register", str(lay(folder / EXTENSION, files_of(_RECIPE, _FEED))))
    for name, permission in zip(NAMES["job"], ("*", HIDDEN["permission"]), strict=True):
        given = {"name": f"{name}feed", "permission": permission}
        words = [word for each in given.items() for word in ("--parameter", "=".join(each))]
        must("extension", "job", "submit", EXTENSION, name, *words)
