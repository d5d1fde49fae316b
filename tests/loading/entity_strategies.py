"""Entities of every kind with any of their fields, as hypothesis makes them up."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from feed_assets.entities.bundle import ENTITY_TYPES, AnyEntity
from feed_assets.entities.common import Kind

Strategy = st.SearchStrategy[Any]
EPOCH = datetime(1901, 1, 1, tzinfo=UTC)

NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,6}", fullmatch=True)
_ODD = st.sampled_from(
    ["${env:HOME}", "$${env:X}", "${ROOT}", "$$${A}", "a,b", "k=v", "<&>\"'", "é€😀", " x ", "0755", "yes", "null", "~",
     "1.10", "- a", "# b", "a: b", "{x}", "\t", "a\nb\n", "\n a", "]]>", "<<", "=", "\x00", "\x85", "\u2028", "\ufeff",
     "-inf", "--conf a=b", "feed_assets.format", ",", "a, b", "conf", "verbose"]
)  # fmt: skip
TEXTS = st.one_of(_ODD, st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
FILLED = TEXTS.filter(lambda text: bool(text.strip()) and "\0" not in text)
PROPERTY_NAMES = st.one_of(
    st.sampled_from(
        [
            "queueName",
            "jobPriority",
            "feed_assets.format",
            "feed_assets.x",
            "a.b",
            "a",
            "\x00",
            "\x01",
            "k=v",
            "conf",
            "verbose",
            "supervise",
            "name",
            "parallel",
            "mapBandwidth",
        ]
    ),
    TEXTS.map(str.strip).filter(bool),
)
FREQUENCIES = st.builds("{}({})".format, st.sampled_from(["minutes", "hours", "days", "months"]), st.integers(1, 99))
TIMES = st.integers(0, 500_000_000).map(lambda minutes: f"{EPOCH + timedelta(minutes=minutes):%Y-%m-%dT%H:%MZ}")
VERSIONS = st.integers(0, 9)
GROUPS = st.lists(st.from_regex(r"[a-z0-9é]{1,5}", fullmatch=True), unique=True, max_size=3)
PIPELINES = st.lists(st.from_regex(r"[a-z_+]{1,5}", fullmatch=True), unique=True, max_size=3)
_PROPERTIES = st.dictionaries(PROPERTY_NAMES, TEXTS, max_size=3)
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.floats(-9, 9), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(TEXTS, inner, max_size=2)),
    max_leaves=4,
)


def _map(required: dict[str, Strategy], **optional: Strategy) -> Strategy:
    return st.fixed_dictionaries(required, optional=optional)


_COLUMN_LINEAGE = st.dictionaries(
    FILLED, st.lists(st.tuples(NAMES, FILLED).map(".".join), max_size=2), min_size=1, max_size=2
)
_TAGS = st.dictionaries(
    st.from_regex(r"\w{1,4}", fullmatch=True), FILLED.filter(lambda text: "," not in text), max_size=2
)
_ACL = _map({"owner": FILLED, "group": FILLED}, permission=st.sampled_from(("*", "0x755", "0o750", "700")))
_SAID = {"properties": st.dictionaries(TEXTS, TEXTS, max_size=2), "tags": st.lists(TEXTS, max_size=2)}
_METADATA = _map({}, **_SAID, columns=st.dictionaries(TEXTS, _map({}, **_SAID), max_size=2))
_COMMON = {
    "description": TEXTS,
    "tags": _TAGS,
    "metadata": _METADATA,
    "properties": _PROPERTIES,
    "acl": _ACL,
    "version": VERSIONS,
}
_VALIDITY = _map({"start": TIMES}, end=TIMES)
_LOCATIONS = _map({}, data=FILLED, stats=FILLED, meta=FILLED, tmp=FILLED)
_NOTIFICATION = _map({"to": st.lists(FILLED, min_size=1, max_size=2)}, level=st.sampled_from(["attempt", "instance"]))

_SPARK = st.one_of(
    _map({}, master=FILLED, conf=_PROPERTIES, submit=_PROPERTIES),
    _map({"remote": st.just("sc://h:1")}),
    _map({"connect": st.just("local[2]")}),
)
CLUSTERS = _map(
    {"name": NAMES, "storage": FILLED.map(lambda text: f"file://{text}")},
    **_COMMON,
    colo=NAMES,
    storage_options=st.dictionaries(TEXTS, _JSON, max_size=2),
    spark=_SPARK,
    catalog=FILLED.map(lambda text: f"thrift://{text}"),
    catalog_options=_PROPERTIES,
    locations=_map({}, staging=FILLED, working=FILLED, temp=FILLED),
    interfaces=st.dictionaries(
        st.sampled_from(["readonly", "write", "execute", "workflow", "messaging", "registry", "spark"]),
        _map({"endpoint": FILLED.map(lambda text: f"thrift://{text}"), "version": TEXTS}),
    ),
)

_DRIVER = _map({"class": FILLED, "jars": st.lists(FILLED, min_size=1, max_size=2)})
_CREDENTIAL = st.one_of(
    _map({"user": FILLED, "password": FILLED}),
    _map({"user": FILLED, "password_file": FILLED}),
    _map({"user": FILLED, "password_alias": _map({"alias": FILLED, "provider": FILLED})}),
)
_INTERFACE = _map({"endpoint": FILLED}, driver=_DRIVER, credential=_CREDENTIAL, properties=_PROPERTIES)
DATASOURCES = _map(
    {
        "name": NAMES,
        "type": st.sampled_from(["mysql", "oracle", "generic"]),
        "interfaces": st.one_of(_map({"readonly": _INTERFACE}, write=_INTERFACE), _map({"write": _INTERFACE})),
    },
    **_COMMON,
    colo=NAMES,
    driver=_DRIVER,
    credential=_CREDENTIAL,
    timezone=st.sampled_from(["UTC", "Europe/Paris"]),
    staging_schema=NAMES,
)

_SIZES = st.one_of(st.integers(1, 10**15), st.sampled_from(["1B", "500MB", "10GiB", "3 TiB"]))
_KEPT: dict[str, Strategy] = {
    "keep_newest": st.integers(0, 10**6),
    "max_instances": st.integers(1, 10**6),
    "max_bytes": _SIZES,
    "until_read_by": st.lists(NAMES, max_size=2, unique=True),
    "until_replicated_to": st.lists(NAMES, max_size=2, unique=True),
    "after_validity": st.booleans(),
    "frequency": FREQUENCIES,
    "trash": FREQUENCIES,
    "sweep_limits": _map({}, share=st.floats(0, 1, exclude_min=True), instances=st.integers(1, 10**6), bytes=_SIZES),
}
_RETENTION = st.one_of(
    _map({}, limit=FREQUENCIES, action=st.sampled_from(["delete", "archive"]), **_KEPT),
    _map({"action": st.just("archive"), "archive_to": FILLED}, limit=FREQUENCIES, **_KEPT),
)
_SLA = _map({"low": FREQUENCIES, "high": FREQUENCIES})
_COLUMNS = st.lists(FILLED, min_size=1, max_size=2)
_FIELDS = st.one_of(_map({"includes": _COLUMNS}), _map({"excludes": _COLUMNS}))
_EXTRACT = _map(
    {"type": st.sampled_from(["full", "incremental"]), "merge_policy": st.sampled_from(["snapshot", "append"])},
    delta_column=FILLED,
)
_IMPORT = _map(
    {"source": _map({"name": NAMES, "table": FILLED}, version=VERSIONS, extract=_EXTRACT, fields=_FIELDS)},
    arguments=_PROPERTIES,
)
_LOAD = _map({"type": st.sampled_from(["updateonly", "allowinsert"])})
_EXPORT = _map(
    {"target": _map({"name": NAMES, "table": FILLED, "load": _LOAD}, version=VERSIONS, fields=_FIELDS)},
    arguments=_PROPERTIES,
)
_STAGE = _map({}, policy=FILLED, frequency=FREQUENCIES, queue=FILLED, priority=FILLED, properties=_PROPERTIES)
_LIFECYCLE = _map({}, retention_stage=_STAGE)
_SIZE = st.sampled_from(["1", "1500B", "2MB", "100MiB"])
_RETRY = _map(
    {"policy": st.sampled_from(["periodic", "exp-backoff"]), "delay": FREQUENCIES, "attempts": st.integers(1, 9)}
)
_REPLICATION = _map(
    {},
    parallel=st.integers(1, 12),
    order=st.sampled_from(["FIFO", "LIFO", "LAST_ONLY"]),
    catch_up=st.sampled_from(["all", "latest", "none"]),
    timeout=FREQUENCIES,
    retry=_RETRY,
    verification=st.sampled_from(["transferred", "whole", "none"]),
    removed_files=st.sampled_from(["by-manifest", "remove", "keep"]),
    overwrite=st.booleans(),
    ignore_errors=st.booleans(),
    preserve=st.lists(st.sampled_from(["times", "permissions"]), unique=True, max_size=2),
    max_tasks=st.integers(1, 1000),
    bandwidth=_SIZE,
    task_bandwidth=_SIZE,
    include=st.lists(FILLED, max_size=2),
    exclude=st.lists(FILLED, max_size=2),
    hidden=st.booleans(),
)
_FEED_CLUSTER = _map(
    {"validity": _VALIDITY},
    type=st.sampled_from(["source", "target"]),
    retention=_RETENTION,
    sla=_SLA,
    lifecycle=_LIFECYCLE,
    **{"import": _IMPORT},
    export=_EXPORT,
    partition=FILLED,
    delay=FREQUENCIES,
    version=VERSIONS,
)


def _lying(part: Strategy) -> Strategy:
    """With locations, or in a table, or nowhere."""
    somewhere = st.one_of(_map({}, locations=_LOCATIONS), _map({}, table=FILLED))
    return st.builds(lambda whole, place: {**whole, **place}, part, somewhere)


FEEDS = _lying(
    _map(
        {
            "name": NAMES,
            "frequency": FREQUENCIES,
            "clusters": st.dictionaries(NAMES, _lying(_FEED_CLUSTER), min_size=1, max_size=2),
        },
        **_COMMON,
        timezone=st.sampled_from(["UTC", "Europe/Paris"]),
        format=st.sampled_from(["csv", "parquet"]),
        columns=st.sampled_from(["refuse", "add", "ignore"]),
        schema=FILLED,
        schema_source=_map({"location": TEXTS, "provider": TEXTS}),
        options=_PROPERTIES,
        availability_flag=FILLED,
        late_arrival=_map({"cut_off": FREQUENCIES}),
        sla=_SLA,
        lifecycle=_LIFECYCLE,
        replication=_REPLICATION,
        partitions=st.lists(NAMES, max_size=2),
        groups=GROUPS,
        preview=st.booleans(),
        notification=_NOTIFICATION,
    )
)

_WORK = _map(
    {"path": FILLED},
    engine=st.sampled_from(["python", "sql", "spark-submit", "oozie", "pig"]),
    lib=st.lists(FILLED, max_size=2),
    name=TEXTS,
    version=TEXTS,
    master=FILLED,
    deploy_mode=st.sampled_from(["client", "cluster", "else"]),
    main_class=FILLED,
    args=st.lists(TEXTS, max_size=2),
    conf=_PROPERTIES,
    submit=_PROPERTIES,
)
_SIZES = st.sampled_from(["1B", "10MB", "3GiB"])
_MIRROR = _map(
    {
        "source": st.one_of(
            _map({"directory": FILLED}, cluster=NAMES),
            _map({"directories": st.lists(FILLED, min_size=1, max_size=2)}, cluster=NAMES),
        ),
        "target": _map({"directory": FILLED}, cluster=NAMES),
    },
    removed_files=st.just("remove"),
    limits=_map({}, share=st.sampled_from([0.1, 1]), files=st.integers(1, 9)),
    allow_emptying=st.booleans(),
    snapshots=_map(
        {"source_keep": st.integers(1, 9), "target_keep": st.integers(1, 9)},
        source_age=FREQUENCIES,
        target_age=FREQUENCIES,
    ),
    verification=st.sampled_from(["transferred", "whole", "none"]),
    overwrite=st.booleans(),
    ignore_errors=st.booleans(),
    preserve=st.lists(st.sampled_from(["times", "permissions"]), unique=True),
    max_tasks=st.integers(1, 9),
    bandwidth=_SIZES,
    task_bandwidth=_SIZES,
    include=st.lists(FILLED, max_size=2),
    exclude=st.lists(FILLED, max_size=2),
    hidden=st.booleans(),
)
_STEP = _map(
    {"path": FILLED},
    engine=st.sampled_from(["python", "sql"]),
    after=st.lists(NAMES, max_size=2),
    recoverable=st.booleans(),
)
_STEPS = _map({"steps": st.dictionaries(NAMES, _STEP, min_size=1, max_size=2)}, engine=st.just("steps"))
_WORKFLOW = st.one_of(_WORK, _WORK, _map({"engine": st.just("directory-mirror"), "mirror": _MIRROR}), _STEPS)
_POLICIES = st.sampled_from(["periodic", "exp-backoff", "final"])
_PROCESS_SLA = _map({}, should_start_in=FREQUENCIES, should_end_in=FREQUENCIES)
PROCESSES = _map(
    {
        "name": NAMES,
        "frequency": FREQUENCIES,
        "clusters": st.dictionaries(
            NAMES, _map({"validity": _VALIDITY}, sla=_PROCESS_SLA, version=VERSIONS), min_size=1, max_size=2
        ),
        "workflow": _WORKFLOW,
    },
    **_COMMON,
    pipelines=PIPELINES,
    parallel=st.integers(1, 12),
    order=st.sampled_from(["FIFO", "LIFO", "LAST_ONLY"]),
    catch_up=st.sampled_from(["all", "latest", "none"]),
    timeout=FREQUENCIES,
    timezone=st.sampled_from(["UTC", "Europe/Paris"]),
    sla=_PROCESS_SLA,
    inputs=st.dictionaries(
        NAMES,
        _map({"feed": NAMES, "start": FILLED, "end": FILLED}, partition=FILLED, optional=st.booleans()),
        max_size=2,
    ),
    outputs=st.dictionaries(
        NAMES, _map({"feed": NAMES, "instance": FILLED}, column_lineage=_COLUMN_LINEAGE), max_size=2
    ),
    retry=_map({"policy": _POLICIES, "delay": FREQUENCIES, "attempts": st.integers(1, 9)}, on_timeout=st.booleans()),
    late_process=_map(
        {
            "policy": _POLICIES,
            "delay": FREQUENCIES,
            "inputs": st.dictionaries(NAMES, st.none() | _WORKFLOW, min_size=1, max_size=2),
        }
    ),
    notification=_NOTIFICATION,
)


def _built(kind: Kind, documents: Strategy) -> st.SearchStrategy[AnyEntity]:
    return documents.map(ENTITY_TYPES[kind].model_validate)


ENTITIES: st.SearchStrategy[AnyEntity] = st.one_of(
    _built(Kind.CLUSTER, CLUSTERS),
    _built(Kind.DATASOURCE, DATASOURCES),
    _built(Kind.FEED, FEEDS),
    _built(Kind.PROCESS, PROCESSES),
)
