"""The schemas of Falcon's documents of version 0.1: the grammar of each kind, and where each value goes."""

from collections.abc import Mapping

from feed_assets.entities.common import Kind
from feed_assets.loading.falcon.grammar import (
    Element,
    Form,
    entries,
    many,
    maybe,
    one,
    optional,
    required,
    section,
    text,
    wrapper,
)

_BOOLEANS = ("true", "false", "1", "0")
_POLICIES = ("periodic", "exp-backoff", "final")
_VERSION = optional("version", default="0")

_TAGS = text("tags", blank_is_none=True)
_TIMEZONE = text("timezone", blank_is_none=True)
_ACL = section(
    "ACL",
    optional("owner", blank_is_none=True),
    optional("group", blank_is_none=True),
    optional("permission", default="*", blank_is_none=True),
    to="acl",
)
_PROPERTIES = entries("properties", "property", required("name"), required("value"), value="value", least=0)
_VALIDITY = section("validity", required("start"), optional("end"))
_NOTIFICATION = section(
    "notification",
    required("type", choices=("email",)),
    optional("level", choices=("attempt", "instance")),
    required("to"),
)

_CLUSTER = section(
    "cluster",
    required("name"),
    optional("description"),
    required("colo", blank_is_none=True),
    _VERSION,
    maybe(_TAGS),
    one(
        entries(
            "interfaces",
            "interface",
            required("type", choices=("readonly", "write", "execute", "workflow", "messaging", "registry", "spark")),
            required("endpoint"),
            required("version"),
            key="type",
            least=3,
        )
    ),
    one(
        entries(
            "locations",
            "location",
            required("name", choices=("staging", "working", "temp")),
            required("path"),
            value="path",
        )
    ),
    maybe(_ACL),
    maybe(_PROPERTIES),
    to="",
)

_DRIVER = section("driver", one(text("clazz", to="class")), many(Element(name="jar", form=Form.LIST, to="jars")))
_CREDENTIAL = section(
    "credential",
    required("type", choices=("password-file", "password-text", "password-alias")),
    one(text("userName", to="user")),
    one(
        text("passwordFile", to="password_file"),
        text("passwordText", to="password"),
        section("passwordAlias", one(text("alias")), one(text("providerPath", to="provider")), to="password_alias"),
    ),
)
_INTERFACES = entries(
    "interfaces",
    "interface",
    required("type", choices=("readonly", "write")),
    required("endpoint"),
    maybe(_DRIVER),
    maybe(_CREDENTIAL),
    maybe(_PROPERTIES),
    key="type",
)
_DATASOURCE = section(
    "datasource",
    required("name"),
    required("colo", blank_is_none=True),
    optional("description"),
    _VERSION,
    required("type", choices=("mysql", "oracle", "hsql", "postgres", "db2", "netezza", "teradata", "generic")),
    maybe(_TAGS),
    one(wrapper("interfaces", *_INTERFACES.content, maybe(_CREDENTIAL))),
    one(_DRIVER),
    maybe(_PROPERTIES),
    maybe(_ACL),
    to="",
)

_FEED_SLA = section("sla", required("slaLow", to="low"), required("slaHigh", to="high"))
_LOCATION = (required("type", choices=("data", "stats", "meta", "tmp")), required("path"))
_LOCATIONS = entries("locations", "location", *_LOCATION, key="type", value="path", least=0)
_TABLE = Element(name="table", form=Form.FIELD, to="table", value="uri", attributes=(required("uri"),))
_RETENTION_STAGE = section(
    "retention-stage",
    maybe(text("policy")),
    maybe(text("frequency")),
    maybe(text("queue", blank_is_none=True)),
    maybe(text("priority", blank_is_none=True)),
    maybe(_PROPERTIES),
    any_order=True,
)
_ARCHIVAL_STAGE = section(
    "archival-stage",
    maybe(text("policy", choices=("AgeBasedArchival",))),
    maybe(text("deleteFromSource", blank_is_none=True)),
    maybe(text("queue", blank_is_none=True)),
    one(section("location", *_LOCATION)),
    maybe(_PROPERTIES),
    any_order=True,
)
_LIFECYCLE = section("lifecycle", maybe(_RETENTION_STAGE), maybe(_ARCHIVAL_STAGE), any_order=True)
_FIELDS = section(
    "fields",
    one(
        wrapper("includes", many(Element(name="field", form=Form.LIST, to="includes"))),
        wrapper("excludes", many(Element(name="field", form=Form.LIST, to="excludes"))),
    ),
)
_ARGUMENTS = entries("arguments", "argument", required("name"), required("value"), value="value", least=0)
_TABLE_OF_DATASOURCE = (required("name"), required("tableName", to="table"), _VERSION)
_EXTRACT = section(
    "extract",
    required("type", choices=("full", "incremental")),
    maybe(text("deltacolumn", to="delta_column", blank_is_none=True)),
    one(text("mergepolicy", to="merge_policy", choices=("snapshot", "append"))),
)
_LOAD = section("load", required("type", choices=("updateonly", "allowinsert")))
_IMPORT = section(
    "import", one(section("source", *_TABLE_OF_DATASOURCE, maybe(_EXTRACT), maybe(_FIELDS))), maybe(_ARGUMENTS)
)
_EXPORT = section(
    "export", one(section("target", *_TABLE_OF_DATASOURCE, one(_LOAD), maybe(_FIELDS))), maybe(_ARGUMENTS)
)
_PARTITION = Element(name="partition", form=Form.LIST, to="partitions", key="name", attributes=(required("name"),))
_RETENTION = section(
    "retention",
    optional("type", choices=("instance",), default="instance"),
    required("limit"),
    required("action", choices=("delete", "archive")),
)
_CLUSTERS = entries(
    "clusters",
    "cluster",
    required("name"),
    optional("type", choices=("source", "target")),
    optional("partition", blank_is_none=True),
    optional("delay"),
    _VERSION,
    one(_VALIDITY),
    one(_RETENTION),
    maybe(_FEED_SLA),
    maybe(_IMPORT),
    maybe(_EXPORT),
    maybe(_LOCATIONS, _TABLE),
    maybe(_LIFECYCLE),
)
_FEED = section(
    "feed",
    required("name"),
    optional("description"),
    _VERSION,
    maybe(_TAGS),
    maybe(wrapper("partitions", many(_PARTITION, least=0))),
    maybe(text("groups")),
    maybe(text("availabilityFlag", to="availability_flag", blank_is_none=True)),
    one(text("frequency")),
    maybe(_FEED_SLA),
    maybe(_TIMEZONE),
    maybe(section("late-arrival", required("cut-off", to="cut_off"))),
    one(_CLUSTERS),
    one(_LOCATIONS, _TABLE),
    maybe(_NOTIFICATION),
    one(_ACL),
    one(section("schema", required("location"), required("provider"), to="schema_source")),
    maybe(_PROPERTIES),
    maybe(_LIFECYCLE),
    to="",
)

_PROCESS_SLA = section(
    "sla", optional("shouldStartIn", to="should_start_in"), optional("shouldEndIn", to="should_end_in")
)
_INPUTS = entries(
    "inputs",
    "input",
    required("name"),
    required("feed"),
    required("start"),
    required("end"),
    optional("partition", blank_is_none=True),
    optional("optional", choices=_BOOLEANS, default="false"),
    least=0,
)
_WORKFLOW = section(
    "workflow",
    optional("name", blank_is_none=True),
    optional("version", default="1.0", blank_is_none=True),
    optional("engine", choices=("oozie", "pig", "hive", "spark"), default="oozie"),
    required("path"),
    optional("lib", blank_is_none=True),
)
_SPARK = section(
    "spark-attributes",
    maybe(text("master", blank_is_none=True)),
    maybe(text("mode", blank_is_none=True)),
    one(text("name", blank_is_none=True)),
    maybe(text("class", blank_is_none=True)),
    one(text("jar")),
    maybe(text("spark-opts", to="spark_opts", blank_is_none=True)),
    many(Element(name="arg", form=Form.LIST, to="args"), least=0),
)
_RETRY = section(
    "retry",
    required("policy", choices=_POLICIES),
    required("delay"),
    required("attempts"),
    optional("onTimeout", to="on_timeout", choices=_BOOLEANS, default="false"),
)
_LATE_INPUTS = entries(
    "inputs", "late-input", required("input"), required("workflow-path"), key="input", value="workflow-path"
)
_PROCESS = section(
    "process",
    required("name"),
    _VERSION,
    maybe(_TAGS),
    maybe(text("pipelines")),
    one(entries("clusters", "cluster", required("name"), _VERSION, one(_VALIDITY), maybe(_PROCESS_SLA))),
    one(text("parallel")),
    one(text("order", choices=("FIFO", "LIFO", "LAST_ONLY"))),
    maybe(text("timeout")),
    one(text("frequency")),
    maybe(_PROCESS_SLA),
    maybe(_TIMEZONE),
    maybe(_INPUTS),
    maybe(entries("outputs", "output", required("name"), required("feed"), required("instance"), least=0)),
    maybe(_PROPERTIES),
    one(_WORKFLOW),
    maybe(_SPARK),
    maybe(_RETRY),
    maybe(section("late-process", required("policy", choices=_POLICIES), required("delay"), *_LATE_INPUTS.content)),
    maybe(_NOTIFICATION),
    maybe(_ACL),
    to="",
)

SCHEMAS: Mapping[Kind, Element] = {
    Kind.CLUSTER: _CLUSTER,
    Kind.DATASOURCE: _DATASOURCE,
    Kind.FEED: _FEED,
    Kind.PROCESS: _PROCESS,
}


def namespace_of(kind: Kind) -> str:
    """Return the namespace of a kind's documents.

    >>> namespace_of(Kind.FEED)
    'uri:falcon:feed:0.1'
    """
    return f"uri:falcon:{kind.value}:0.1"
