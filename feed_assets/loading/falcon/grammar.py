"""The schemas of Falcon's documents of version 0.1: the grammar of each kind, and where each value goes.

Each element lists its children and attributes, and the key of its value in our models. One table thus serves reading,
checking, writing and documentation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from feed_assets.entities.common import Kind


class Form(StrEnum):
    """How the value of an element is built; `to` is its key in the map of the enclosing element.

    INLINE: attributes and children go into the enclosing map. MAP: they form a map of their own at `to`. TEXT: the text
    of the element. LIST: one more item of the list at `to`, either the attribute `key` or the text. KEYED: one more
    entry of the map at `to`, under the attribute `key`: a map, or only the attribute `value`.
    """

    INLINE = "inline"
    MAP = "map"
    TEXT = "text"
    LIST = "list"
    KEYED = "keyed"


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute and the key of its value; `default` is the value that Falcon assumes without it.

    A blank value means none if `blank_is_none` is set.
    """

    name: str
    to: str | None = None
    choices: tuple[str, ...] = ()
    default: str | None = None
    blank_is_none: bool = field(default=False, kw_only=True)
    required: bool = field(default=False, kw_only=True)

    @property
    def key(self) -> str:
        """The key of the value."""
        return self.to or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One position in the sequence of children: an element, or a choice of one among several."""

    elements: tuple["Element", ...]
    least: int = 0
    most: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """An element; `content` is the sequence of its children, in any order only if `any_order` is set.

    A blank text means none if `blank_is_none` is set.
    """

    name: str
    form: Form = Form.MAP
    to: str = ""
    key: str | None = None
    value: str | None = None
    attributes: tuple[Attribute, ...] = ()
    content: tuple[Part, ...] = ()
    any_order: bool = False
    choices: tuple[str, ...] = ()
    blank_is_none: bool = False

    @property
    def child_names(self) -> tuple[str, ...]:
        """The names of the children, in order."""
        return tuple(element.name for part in self.content for element in part.elements)

    def find_child(self, name: str) -> tuple[int, "Element"] | None:
        """Return the named child with the position of its part in `content`; None if there is none."""
        found = ((position, each) for position, part in enumerate(self.content) for each in part.elements)
        return next((pair for pair in found if pair[1].name == name), None)

    def find_attribute(self, name: str) -> Attribute | None:
        """Return the attribute of this name; None if there is none."""
        return next((attribute for attribute in self.attributes if attribute.name == name), None)


def one(*elements: Element) -> Part:
    """Return a part that must occur exactly once: an element, or one of a choice."""
    return Part(elements=elements, least=1)


def maybe(*elements: Element) -> Part:
    """Return a part that may occur once: an element, or one of a choice."""
    return Part(elements=elements)


def many(element: Element, least: int = 1) -> Part:
    """Return a part whose element occurs at least `least` times."""
    return Part(elements=(element,), least=least, most=None)


def text(name: str, to: str | None = None, choices: tuple[str, ...] = (), *, blank_is_none: bool = False) -> Element:
    """Return an element that contains only text."""
    return Element(name=name, form=Form.TEXT, to=to or name, choices=choices, blank_is_none=blank_is_none)


optional, required = Attribute, partial(Attribute, required=True)


def wrapper(name: str, *content: Part) -> Element:
    """Return an element that only contains other elements."""
    return Element(name=name, form=Form.INLINE, content=content)


def section(name: str, *inside: Attribute | Part, to: str | None = None, any_order: bool = False) -> Element:
    """Return an element that is a map of its attributes and children, at the key `to` (by default its name)."""
    attributes, content = _divide(inside)
    key = name.replace("-", "_") if to is None else to
    return Element(name=name, to=key, attributes=attributes, content=content, any_order=any_order)


def entries(
    to: str, name: str, *inside: Attribute | Part, key: str = "name", value: str | None = None, least: int = 1
) -> Element:
    """Return the element `to` of at least `least` elements, which become a map by their attribute `key`."""
    attributes, content = _divide(inside)
    entry = Element(name=name, form=Form.KEYED, to=to, key=key, value=value, attributes=attributes, content=content)
    return wrapper(to, many(entry, least))


def _divide(inside: tuple[Attribute | Part, ...]) -> tuple[tuple[Attribute, ...], tuple[Part, ...]]:
    attributes = tuple(each for each in inside if isinstance(each, Attribute))
    return attributes, tuple(each for each in inside if isinstance(each, Part))


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
_TABLE = Element(name="table", form=Form.INLINE, attributes=(required("uri", to="table"),))
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
