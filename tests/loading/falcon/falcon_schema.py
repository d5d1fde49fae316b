"""The rules of Falcon's schemas, and a check of documents against them.

The rules are those of the newest schemas of Falcon's repository: `feed-0.1.xsd` in `common-types/src/main/resources`,
`process-0.1.xsd`, `cluster-0.1.xsd` and `datasource-0.1.xsd` in `client/src/main/resources`. Only `archival-stage` is
left out, which is never written.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from feed_assets.loading.falcon.xml_nodes import XmlElement, read_xml

ANY = r"(?s:.*)"
FILLED = r"(?s:.+)"
IDENTIFIER = r"[a-zA-Z][-a-zA-Z0-9]*"
KEY_VALUES = r"(\w+=[^,]+)?(,? *\w+=[^,]+)*"
PIPELINES = r"[\w+]+(,? *[\w+]+)*"
FREQUENCY = r"(minutes|hours|days|months)\([1-9]\d*\)"
INTEGER = r"\d{1,10}"
BOOLEAN = "true|false|1|0"
_DAY = r"[- /.](0[1-9]|1[012])[- /.](0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\dZ"
FEED_TIME = rf"(19|20)\d\d{_DAY}"
PROCESS_TIME = rf"[12]\d\d\d{_DAY}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The children of an element as in a DTD, its attributes (`!`: required) and its text, as patterns."""

    content: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    text: str = r"\s*"


def _text(pattern: str) -> Rule:
    return Rule(text=pattern)


_SHARED = {
    "tags": _text(KEY_VALUES),
    "ACL": Rule(attributes={"owner": ANY, "group": ANY, "permission": ANY}),
    "properties": Rule(content="property*"),
    "property": Rule(attributes={"name!": ANY, "value!": ANY}),
}
_TIMED = _SHARED | {
    "frequency": _text(FREQUENCY),
    "timezone": _text(ANY),
    "clusters": Rule(content="cluster+"),
    "notification": Rule(attributes={"type!": "email", "level": "attempt|instance", "to!": ANY}),
}
_TABLE = Rule(content="(extract|load), fields?", attributes={"name!": FILLED, "tableName!": FILLED, "version": INTEGER})
_FIELDS = Rule(content="field+")
_TEXTS = {name: _text(ANY) for name in ("master", "mode", "name", "class", "jar", "spark-opts", "arg")}
SCHEMAS: Mapping[str, Mapping[str, Rule]] = {
    "cluster": _SHARED
    | {
        "cluster": Rule(
            content="tags?, interfaces, locations, ACL?, properties?",
            attributes={"name!": IDENTIFIER, "description": ANY, "colo!": ANY, "version": INTEGER},
        ),
        "interfaces": Rule(content="interface, interface, interface+"),
        "interface": Rule(
            attributes={
                "type!": "readonly|write|execute|workflow|messaging|registry|spark",
                "endpoint!": ANY,
                "version!": ANY,
            }
        ),
        "locations": Rule(content="location+"),
        "location": Rule(attributes={"name!": "staging|working|temp", "path!": ANY}),
    },
    "datasource": _SHARED
    | {
        "datasource": Rule(
            content="tags?, interfaces, driver, properties?, ACL?",
            attributes={
                "name!": IDENTIFIER,
                "colo!": ANY,
                "description": ANY,
                "version": INTEGER,
                "type!": "mysql|oracle|hsql|postgres|db2|netezza|teradata|generic",
            },
        ),
        "interfaces": Rule(content="interface, interface?, credential?"),
        "interface": Rule(
            content="driver?, credential?, properties?", attributes={"type!": "readonly|write", "endpoint!": ANY}
        ),
        "driver": Rule(content="clazz, jar+"),
        "credential": Rule(
            content="userName, (passwordFile|passwordText|passwordAlias)",
            attributes={"type!": "password-file|password-text|password-alias"},
        ),
        "passwordAlias": Rule(content="alias, providerPath"),
    }
    | {
        name: _text(ANY)
        for name in ("clazz", "jar", "userName", "passwordFile", "passwordText", "alias", "providerPath")
    },
    "feed": _TIMED
    | {
        "feed": Rule(
            content="tags?, partitions?, groups?, availabilityFlag?, frequency, sla?, timezone?, late-arrival?, "
            "clusters, (locations|table), notification?, ACL, schema, properties?, lifecycle?",
            attributes={"name!": IDENTIFIER, "description": ANY, "version": INTEGER},
        ),
        "partitions": Rule(content="partition*"),
        "partition": Rule(attributes={"name!": IDENTIFIER}),
        "groups": _text(r"[^\W_]+(,[^\W_]+)*"),
        "availabilityFlag": _text(ANY),
        "sla": Rule(attributes={"slaLow!": FREQUENCY, "slaHigh!": FREQUENCY}),
        "late-arrival": Rule(attributes={"cut-off!": FREQUENCY}),
        "cluster": Rule(
            content="validity, retention, sla?, import?, export?, (locations|table)?, lifecycle?",
            attributes={
                "name!": IDENTIFIER,
                "type": "source|target",
                "partition": ANY,
                "delay": FREQUENCY,
                "version": INTEGER,
            },
        ),
        "validity": Rule(attributes={"start!": FEED_TIME, "end!": FEED_TIME}),
        "retention": Rule(attributes={"type": "instance", "limit!": FREQUENCY, "action!": "delete"}),
        "import": Rule(content="source, arguments?"),
        "export": Rule(content="target, arguments?"),
        "source": _TABLE,
        "target": _TABLE,
        "extract": Rule(content="deltacolumn?, mergepolicy", attributes={"type!": "full|incremental"}),
        "deltacolumn": _text(ANY),
        "mergepolicy": _text("snapshot|append"),
        "load": Rule(attributes={"type!": "updateonly|allowinsert"}),
        "fields": Rule(content="(includes|excludes)"),
        "includes": _FIELDS,
        "excludes": _FIELDS,
        "field": _text(ANY),
        "arguments": Rule(content="argument*"),
        "argument": Rule(attributes={"name!": ANY, "value!": ANY}),
        "locations": Rule(content="location*"),
        "location": Rule(attributes={"type!": "data|stats|meta|tmp", "path!": FILLED}),
        "table": Rule(attributes={"uri!": ANY}),
        "schema": Rule(attributes={"location!": ANY, "provider!": ANY}),
        "lifecycle": Rule(content="retention-stage?"),
        "retention-stage": Rule(content="policy?, frequency?, queue?, priority?, properties?"),
        "policy": _text(FILLED),
        "queue": _text(ANY),
        "priority": _text(ANY),
    },
    "process": _TIMED
    | _TEXTS
    | {
        "process": Rule(
            content="tags?, pipelines?, clusters, parallel, order, timeout?, frequency, sla?, timezone?, inputs?, "
            "outputs?, properties?, workflow, spark-attributes?, retry?, late-process?, notification?, ACL?",
            attributes={"name!": IDENTIFIER, "version": INTEGER},
        ),
        "pipelines": _text(PIPELINES),
        "cluster": Rule(content="validity, sla?", attributes={"name!": IDENTIFIER, "version": INTEGER}),
        "validity": Rule(attributes={"start!": PROCESS_TIME, "end!": PROCESS_TIME}),
        "parallel": _text("[1-9]|1[012]"),
        "order": _text("FIFO|LIFO|LAST_ONLY"),
        "timeout": _text(FREQUENCY),
        "sla": Rule(attributes={"shouldStartIn": FREQUENCY, "shouldEndIn": FREQUENCY}),
        "inputs": Rule(content="input+"),
        "input": Rule(
            attributes={
                "name!": IDENTIFIER,
                "feed!": IDENTIFIER,
                "start!": ANY,
                "end!": ANY,
                "partition": ANY,
                "optional": BOOLEAN,
            }
        ),
        "outputs": Rule(content="output+"),
        "output": Rule(attributes={"name!": IDENTIFIER, "feed!": IDENTIFIER, "instance!": ANY}),
        "workflow": Rule(
            attributes={"name": ANY, "version": ANY, "engine": "oozie|pig|hive|spark", "path!": ANY, "lib": ANY}
        ),
        "spark-attributes": Rule(content="master?, mode?, name, class?, jar, spark-opts?, arg*"),
        "retry": Rule(
            attributes={
                "policy!": "periodic|exp-backoff|final",
                "delay!": FREQUENCY,
                "attempts!": r"[1-9]\d{0,4}",
                "onTimeout": BOOLEAN,
            }
        ),
        "late-process": Rule(
            content="late-input+", attributes={"policy!": "periodic|exp-backoff|final", "delay!": FREQUENCY}
        ),
        "late-input": Rule(attributes={"input!": IDENTIFIER, "workflow-path!": ANY}),
    },
}


def find_faults(text: str) -> list[str]:
    """Return where a document breaks the rules of Falcon's schema; empty if it is valid."""
    root = read_xml(text)
    assert isinstance(root, XmlElement), root
    return list(_faults(root, SCHEMAS[root.name], f"uri:falcon:{root.name}:0.1"))


def _faults(node: XmlElement, rules: Mapping[str, Rule], namespace: str) -> Iterator[str]:
    rule = rules[node.name]
    where = f"{node.line}: {node.name}"
    if node.namespace != namespace:
        yield f"{where} is in namespace {node.namespace!r}"
    children = "".join(f"{child.name} " for child in node.children)
    if not re.fullmatch(re.sub(r"[\w-]+", r"(?:\g<0> )", rule.content).replace(", ", ""), children):
        yield f"{where} contains {children}, not {rule.content}"
    if not re.fullmatch(rule.text, node.text):
        yield f"{where} contains {node.text!r}"
    patterns = {name.rstrip("!"): pattern for name, pattern in rule.attributes.items()}
    required = {name.rstrip("!") for name in rule.attributes if name.endswith("!")}
    yield from (f"{where} has no {name}" for name in required - node.attributes.keys())
    for name, attribute in node.attributes.items():
        if name not in patterns or not re.fullmatch(patterns[name], attribute.value):
            yield f"{where} has {name}={attribute.value!r}"
    for child in node.children:
        if child.name in rules:
            yield from _faults(child, rules, namespace)
