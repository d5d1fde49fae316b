"""The grammar of Falcon's process documents, and where each value goes."""

from feed_assets.loading.falcon.grammar import Element, Form, many, maybe, one, optional, required, text, wrapper
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

_PROCESS_SLA = Element(
    name="sla",
    to="sla",
    attributes=(optional("shouldStartIn", to="should_start_in"), optional("shouldEndIn", to="should_end_in")),
)
PROCESS = Element(
    name="process",
    attributes=(required("name"), VERSION),
    content=(
        maybe(TAGS),
        maybe(text("pipelines")),
        one(
            wrapper(
                "clusters",
                many(
                    Element(
                        name="cluster",
                        form=Form.KEYED,
                        to="clusters",
                        key="name",
                        attributes=(required("name"), VERSION),
                        content=(one(VALIDITY), maybe(_PROCESS_SLA)),
                    )
                ),
            )
        ),
        one(text("parallel")),
        one(text("order", choices=("FIFO", "LIFO", "LAST_ONLY"))),
        maybe(text("timeout")),
        one(text("frequency")),
        maybe(_PROCESS_SLA),
        maybe(TIMEZONE),
        maybe(
            wrapper(
                "inputs",
                many(
                    Element(
                        name="input",
                        form=Form.KEYED,
                        to="inputs",
                        key="name",
                        attributes=(
                            required("name"),
                            required("feed"),
                            required("start"),
                            required("end"),
                            optional("partition", blank_is_none=True),
                            optional("optional", choices=BOOLEANS, default="false"),
                        ),
                    ),
                    least=0,
                ),
            )
        ),
        maybe(
            wrapper(
                "outputs",
                many(
                    Element(
                        name="output",
                        form=Form.KEYED,
                        to="outputs",
                        key="name",
                        attributes=(required("name"), required("feed"), required("instance")),
                    ),
                    least=0,
                ),
            )
        ),
        maybe(PROPERTIES),
        one(
            Element(
                name="workflow",
                to="workflow",
                attributes=(
                    optional("name", blank_is_none=True),
                    optional("version", default="1.0", blank_is_none=True),
                    optional("engine", choices=("oozie", "pig", "hive", "spark"), default="oozie"),
                    required("path"),
                    optional("lib", blank_is_none=True),
                ),
            )
        ),
        maybe(
            Element(
                name="spark-attributes",
                to="spark_attributes",
                content=(
                    maybe(text("master", blank_is_none=True)),
                    maybe(text("mode", blank_is_none=True)),
                    one(text("name", blank_is_none=True)),
                    maybe(text("class", blank_is_none=True)),
                    one(text("jar")),
                    maybe(text("spark-opts", to="spark_opts", blank_is_none=True)),
                    many(Element(name="arg", form=Form.LIST, to="args"), least=0),
                ),
            )
        ),
        maybe(
            Element(
                name="retry",
                to="retry",
                attributes=(
                    required("policy", choices=POLICIES),
                    required("delay"),
                    required("attempts"),
                    optional("onTimeout", to="on_timeout", choices=BOOLEANS, default="false"),
                ),
            )
        ),
        maybe(
            Element(
                name="late-process",
                to="late_process",
                attributes=(required("policy", choices=POLICIES), required("delay")),
                content=(
                    many(
                        Element(
                            name="late-input",
                            form=Form.KEYED,
                            to="inputs",
                            key="input",
                            value="workflow-path",
                            attributes=(required("input"), required("workflow-path")),
                        )
                    ),
                ),
            )
        ),
        maybe(NOTIFICATION),
        maybe(ACL),
    ),
)
