"""The grammar of Falcon's process documents, and where each value goes."""

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
)
from feed_assets.loading.falcon.shared_elements import (
    ACL,
    BOOLEANS,
    NOTIFICATION,
    POLICIES,
    PROPERTIES,
    TAGS,
    TIMEZONE,
    VALIDITY,
    VERSION,
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
    optional("optional", choices=BOOLEANS, default="false"),
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
    required("policy", choices=POLICIES),
    required("delay"),
    required("attempts"),
    optional("onTimeout", to="on_timeout", choices=BOOLEANS, default="false"),
)
_LATE_INPUTS = entries(
    "inputs", "late-input", required("input"), required("workflow-path"), key="input", value="workflow-path"
)
PROCESS = section(
    "process",
    required("name"),
    VERSION,
    maybe(TAGS),
    maybe(text("pipelines")),
    one(entries("clusters", "cluster", required("name"), VERSION, one(VALIDITY), maybe(_PROCESS_SLA))),
    one(text("parallel")),
    one(text("order", choices=("FIFO", "LIFO", "LAST_ONLY"))),
    maybe(text("timeout")),
    one(text("frequency")),
    maybe(_PROCESS_SLA),
    maybe(TIMEZONE),
    maybe(_INPUTS),
    maybe(entries("outputs", "output", required("name"), required("feed"), required("instance"), least=0)),
    maybe(PROPERTIES),
    one(_WORKFLOW),
    maybe(_SPARK),
    maybe(_RETRY),
    maybe(section("late-process", required("policy", choices=POLICIES), required("delay"), *_LATE_INPUTS.content)),
    maybe(NOTIFICATION),
    maybe(ACL),
    to="",
)
