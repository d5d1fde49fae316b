"""Airflow's paths to assets, their events, what is queued, and `materialize`: its assets are feeds here, its DAGs
processes, and the id of either is its name. A partition is an instance, a DAG run an instance of a process.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import ge, gt, le, lt
from typing import Any

from feed_assets.errors import shorten
from feed_assets.log.records import MESSAGE
from feed_assets.log.run_names import find_run
from feed_assets.server.aliases.records import Alias, Asked, Json, reshape
from feed_assets.server.errors import RequestRefusedError

_MOST_EVENTS, _MOST_BATCHES, _EVERYTHING = 1_000, 50, 1_000_000
_PAGE = 100
"""Items of a page by default, and at most."""
_COMPARED = {"gte": ge, "gt": gt, "lte": le, "lt": lt}
_SOURCES = ("source_dag_id", "source_task_id", "source_run_id")
_EVENT = reshape("id=seq, asset_id=feed, name=feed, uri=feed, timestamp=recorded_at, partition_key=nominal_time")
_STATES = {"RUNNING": "running", "SUCCEEDED": "success", "FAILED": "failed", "KILLED": "failed", "TIMEDOUT": "failed"}


def _parse_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _read(asked: Asked, name: str, parse: Any, default: Any = None) -> Any:
    try:
        return parse(asked.one(name)) if name in asked.values else default
    except ValueError as exc:
        raise RequestRefusedError(422, f"{name} cannot be {shorten(asked.one(name), 40)!r}.") from exc


def _read_body(asked: Asked, types: Mapping[str, type]) -> Json:
    body = {} if asked.body is None else asked.body
    told = body.items() if isinstance(body, dict) else [("", body)]
    if not all(name in types and (value is None or isinstance(value, types[name])) for name, value in told):
        raise RequestRefusedError(422, f"The body is a JSON object with {', '.join(types)}, each of its type.")
    return {name: value for name, value in body.items() if value is not None}


def _page(asked: Asked, name: str, items: list[Any]) -> Json:
    offset, limit = _read(asked, "offset", int, 0), _read(asked, "limit", int, _PAGE)
    if offset < 0 or limit < 0:
        raise RequestRefusedError(422, "offset and limit are 0 or more.")
    return {name: items[offset : offset + min(limit, _PAGE)], "total_entries": len(items)}


def _near(document: Any) -> Iterator[list[str]]:
    """Yield who makes a feed, and who reads it."""
    for tag in ("Output", "Input"):
        yield [each["name"] for each in document["dependencies"] if tag in each["tags"]]


def _asset(asked: Asked, name: str, makers: Iterable[str], readers: Iterable[str]) -> Json:
    newest = asked.ask("feed events", feed=name, limit="1")["events"]
    producing, consuming = ([{"dag_id": each, "task_id": each} for each in of] for of in (makers, readers))
    return {
        **dict.fromkeys(("id", "name", "uri"), name),
        "group": "asset",
        "extra": {},
        "aliases": [],
        "scheduled_dags": [{"dag_id": each} for each in readers],
        "consuming_tasks": consuming,
        "producing_tasks": producing,
        "last_asset_event": next(({"id": each["seq"], "timestamp": each["recorded_at"]} for each in newest), None),
    }


def _show_asset(document: Any, asked: Asked) -> Any:
    return _asset(asked, asked.one("asset_id"), *_near(document))


def _list_assets(document: Any, asked: Asked) -> Any:
    order = asked.one("order_by", "id")
    if order.removeprefix("-") not in ("id", "name", "uri"):
        raise RequestRefusedError(400, f"order_by {order!r} is none of id, name and uri.")
    makers, readers = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for process in document["entities"]:
        for dags_of, way in ((makers, "outputs"), (readers, "inputs")):
            for feed in process[way]:
                dags_of[feed].append(process["name"])
    dags, patterns = {*asked.many("dag_ids")}, [asked.one(each) for each in ("uri_pattern", "name_pattern")]
    found = sorted(
        name
        for name in (each["name"] for each in document["entities"] if each["kind"] == "feed")
        if all(each.strip("%") in name for each in patterns) and (not dags or dags & {*makers[name], *readers[name]})
    )
    page = _page(asked, "assets", found[:: -1 if order.startswith("-") else 1])
    return {**page, "assets": [_asset(asked, each, makers[each], readers[each]) for each in page["assets"]]}


def _event(event: Json, runs: Mapping[int, Any]) -> Json:
    process = event["payload"].get("process")
    return {
        **_EVENT(event),
        "extra": event["payload"].get(MESSAGE) or {},
        "source_dag_id": process,
        "source_task_id": process,
        "source_map_index": -1,
        "source_run_id": find_run(event["origin"]) if process else None,
        "created_dagruns": runs.get(event["seq"], []),
    }


def _runs(asked: Asked, feed: str) -> Mapping[int, Any]:
    """Return the newest batches that have taken each event of a feed, by its number."""
    found: dict[int, list[Json]] = defaultdict(list)
    for batch in asked.ask("batch list", feed=[feed], num_results=_MOST_BATCHES)["batches"]:
        where = {name: batch[name] for name in ("process", "cluster")}
        run = {"dag_id": batch["process"], "run_id": batch["run_id"], "logical_date": batch["batch"]}
        for each in asked.ask("batch show", instance=batch["batch"], **where)["events"]:
            found[each["event"]].append({**run, "state": _STATES.get(batch["status"], "queued")})
    return found


def _list_events(document: Any, asked: Asked) -> Any:
    limits = [(holds, _read(asked, f"timestamp_{name}", _parse_time)) for name, holds in _COMPARED.items()]
    limits = [each for each in limits if each[1] is not None]
    source = {name: asked.one(name) for name in _SOURCES if name in asked.values}
    source |= {"source_map_index": _read(asked, "source_map_index", int, -1)}
    runs = _runs(asked, asked.one("asset_id"))
    found = [
        event
        for event in (_event(each, runs) for each in document["events"])
        if all(holds(_parse_time(event["timestamp"]), limit) for holds, limit in limits)
        and all(event[name] == value for name, value in source.items())
    ]
    return _page(asked, "asset_events", found)


def _notify(asked: Asked) -> Json:
    body = _read_body(asked, {"asset_id": str, "extra": dict, "partition_key": str})
    if "asset_id" not in body:
        raise RequestRefusedError(422, "The body has no asset_id.")
    payload = {**body.get("extra", {}), "from_rest_api": True}
    return {"feed": body["asset_id"], "instance": body.get("partition_key"), "payload": payload}


def _show_notified(document: Any, asked: Asked) -> Any:
    feed, time = document["feed"], document["nominal_time"]
    until = f"{_parse_time(time) + timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
    return _event(asked.ask("feed events", feed=feed, start=time, end=until, limit="1")["events"][0], {})


def _list_queued(asked: Asked) -> Sequence[tuple[Json, Sequence[Json]]]:
    """Return the queues with what is pending for an asset, a DAG, or both, and these events."""
    asset, dag, before = asked.one("asset_id"), asked.one("dag_id"), _read(asked, "before", _parse_time)
    takers = asked.ask("queue consumers", feed=asset)["consumers"] if asset else asked.ask("queue list")["queues"]
    keys = sorted({(each["process"], each["cluster"]) for each in takers if each["pending"]})
    queues = [dict(zip(("process", "cluster"), key, strict=True)) for key in keys if dag in ("", key[0])]

    def is_meant(event: Json) -> bool:
        return asset in ("", event["feed"]) and (before is None or _parse_time(event["recorded_at"]) < before)

    found = ((queue, [*filter(is_meant, asked.ask("queue show", **queue)["events"])]) for queue in queues)
    if not (pending := [each for each in found if each[1]]):
        raise RequestRefusedError(404, "Nothing is queued.")
    return pending


def _show_queued(_: Any, asked: Asked) -> Any:
    first: dict[tuple[str, str], Json] = {}
    for queue, events in _list_queued(asked):
        for each in events:
            told = {"asset_id": each["feed"], "dag_id": queue["process"], "created_at": each["recorded_at"]}
            first.setdefault((each["feed"], queue["process"]), told)
    listed = [*first.values()]
    is_one = {"asset_id", "dag_id"} <= asked.values.keys()
    return listed[0] if is_one else {"queued_events": listed, "total_entries": len(listed)}


def _drop(asked: Asked) -> list[Json]:
    why = "dropped by a request for Airflow's queuedEvents"
    return [
        {**queue, "event": sorted({each["event"] for each in events}), "reason": why}
        for queue, events in _list_queued(asked)
    ]


def _materialize(asked: Asked) -> Json:
    asset, body = asked.one("asset_id"), _read_body(asked, {"partition_key": str, "logical_date": str})
    makers, _ = _near(asked.ask("entity dependency", kind="feed", name=asset))
    if len(makers) != 1:
        text = f"Asset {asset!r} is made by {' and '.join(makers) or 'no DAG'}; it must be one."
        raise RequestRefusedError(409 if makers else 404, text)
    of_process = {"kind": "process", "name": makers[0]}
    found = asked.ask("instance list", **of_process, num_results=_PAGE)["instances"] if not body else []
    times = [*body.values()] or sorted((each["nominal_time"] for each in found), reverse=True)
    if not times:
        raise RequestRefusedError(409, f"DAG {makers[0]!r} has no instance yet that can run again.")
    return {**of_process, "instance": times[0], "file": None}


def _show_run(document: Any, _: Asked) -> Any:
    if not document["changed"]:
        raise RequestRefusedError(409, "The instance cannot run again now.")
    time = document["instances"][0]["nominal_time"]
    told = {"dag_id": document["process"], "dag_run_id": f"{document['process']}/{time}", "logical_date": time}
    return {**told, "partition_key": time, "state": "queued", "run_type": "manual"}


_PAGED = "limit=, offset="
_LISTED = f"uri_pattern=, name_pattern=, dag_ids=, order_by=, {_PAGED}"
_FILTERED = f"{'=, '.join((*_SOURCES, *(f'timestamp_{each}' for each in _COMPARED)))}=, source_map_index=, {_PAGED}"
_ASSETS, _DAG = "/api/v2/assets", "/api/v2/dags/{dag_id}/assets"
_ALL = {"kind": ["feed", "process"], "fields": "INPUTS,OUTPUTS", "num_results": _EVERYTHING}
_get, _post = partial(Alias, "GET"), partial(Alias, "POST", statuses={400: 422})
_queued = partial(_get, operation="queue list", names="before=", form=_show_queued)
_dropped = partial(Alias, "DELETE", operation="queue drop", names="before=", given=_drop, form=lambda *_: None)

AIRFLOW: tuple[Alias, ...] = (
    _get(_ASSETS, "entity list", _LISTED, _ALL, _list_assets),
    _get(f"{_ASSETS}/events", "feed events", f"asset_id=feed, {_FILTERED}", {"limit": _MOST_EVENTS}, _list_events),
    _post(f"{_ASSETS}/events", "feed notify", given=_notify, form=_show_notified),
    *(
        row(f"{path}/queuedEvents")
        for path in (f"{_ASSETS}/{{asset_id}}", _DAG, f"{_DAG}/{{asset_id}}")
        for row in (_queued, _dropped)
    ),
    _post(f"{_ASSETS}/{{asset_id}}/materialize", "instance rerun", given=_materialize, form=_show_run),
    _get(f"{_ASSETS}/{{asset_id}}", "entity dependency", "asset_id=name", {"kind": "feed"}, _show_asset),
)
