"""Convert values in the structure of Falcon's documents to values of our models, with notes on changes of form."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from feed_assets.entities.cluster import spark_of
from feed_assets.entities.common import PRIORITY_PROPERTY, QUEUE_PROPERTY, Kind
from feed_assets.entities.datasource import UPDATE_KEY
from feed_assets.entities.replication import PROPERTIES, WITHOUT_EFFECT, unreadable_properties
from feed_assets.issues import FieldPath
from feed_assets.loading.documents import Note, NoteKind
from feed_assets.loading.falcon import reserved
from feed_assets.loading.falcon.reading import Reading, quote
from feed_assets.loading.falcon.spark_options import parse_spark_options
from feed_assets.loading.messages import render_path
from feed_assets.timing.dates import is_utc, parse_timezone
from feed_assets.timing.errors import TimeZoneError
from feed_assets.timing.templates import TimeVariable, find_variables

_SUBSTITUTION = re.compile(r"(?<!\$)\$\{((?:[^{}'\"]|'[^']*'|\"[^\"]*\")*)\}")  # ${coord:nominalTime()}
_VARIABLE = re.compile(r"\$\{([\w.-]+)\}")  # ${region}
_PART = re.compile(
    r"""'[^']*' | "[^"]*"
    | wf:conf\(\s*(?:'(?P<single>\w+)'|"(?P<double>\w+)")\s*\)
    | coord:dataIn\(\s*(?P<input>'[^']*'|"[^"]*")\s*\)
    | (?P<function>[a-z]+:\w+)(?=\s*\()
    | (?<![\w.:-])(?P<word>[A-Za-z_]\w*)(?![\w.:-])""",
    re.VERBOSE | re.ASCII,
)
_IN_TEXTS: Mapping[str, str] = {
    "coord:nominalTime": "instanceTime",
    "coord:formatTime": "formatTime",
    "coord:dateOffset": "dateOffset",
    "coord:dateTzOffset": "dateTzOffset",
    "coord:epochTime": "epochTime",
    "coord:user": "user",
    "wf:user": "user",
}
_IN_WINDOWS: Mapping[str, str] = {"coord:latest": "latest", "coord:future": "future"}
_NOMINAL_TIME = "nominalTime"
_FORMATTED = "formatTime(instanceTime(), 'yyyy-MM-dd-HH-mm')"
_TABLE = "the workflow gets falcon_<name>_database, falcon_<name>_table and the other properties of tables"
_CURRENT = "write now(hours,minutes): over an hourly feed coord:current(-1) is now(-1,0)"
_WINDOW = "write an input with this window, such as start: latest(0)"
_PERIOD = "write a frequency, such as days(1), or dateOffset(instanceTime(), -1, 'DAY')"
_ANY_REMEDY = "compute it in the workflow"
_REMEDIES: Mapping[str, str] = {
    **dict.fromkeys(("timestamp", "concat", "replaceAll", "appendAll", "trim", "urlEncode"), _ANY_REMEDY),
    **dict.fromkeys(("firstNotNull", "toJsonStr", "toPropertiesStr", "toConfigurationStr"), _ANY_REMEDY),
    **dict.fromkeys(("coord:current", "coord:currentRange", "coord:offset"), _CURRENT),
    **dict.fromkeys(("coord:latest", "coord:latestRange", "coord:future", "coord:futureRange"), _WINDOW),
    **{f"coord:{unit}": _PERIOD for unit in ("minutes", "hours", "days", "months", "endOfDays", "endOfMonths")},
    **{f"coord:{name}{end}": _TABLE for name in ("database", "table") for end in ("In", "Out")},
    **dict.fromkeys(("coord:dataInPartitionFilter", "coord:dataOutPartitions", "coord:dataOutPartitionValue"), _TABLE),
    "coord:actualTime": "only the nominal time is known, instanceTime(); the workflow can ask for the present",
    "timeStamp": "only the nominal time is known, instanceTime(); the workflow can ask for the present",
    "coord:dataOut": "the workflow gets the path in the property with the name of the output",
    "wf:conf": "write the name of the property, ${name}",
    "wf:id": "a Python workflow has it as context.run_id, a SQL workflow as :run_id",
    "wf:run": "a Python workflow has it as context.run_id, a SQL workflow as :run_id",
    "nameNode": "write the address, or a property of the cluster as ${cluster.<property>}",
    "jobTracker": "there is no job tracker; remove it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The text in the language of feed-assets; `untranslated` are the functions and variables without a counterpart."""

    text: str
    untranslated: tuple[str, ...] = ()

    def remedies(self) -> Iterator[str]:
        """Yield what to write instead of each function or variable without a counterpart."""
        for name in self.untranslated:
            yield f"{name} has no counterpart: {_REMEDIES.get(name, _ANY_REMEDY)}"


def translate_text(text: str, properties: Mapping[str, str]) -> Translation:
    """Translate the functions and variables in every `${…}`; properties of the process are no variables of Oozie.

    >>> translate_text("day=${coord:formatTime(coord:nominalTime(), 'yyyy')}", {}).text
    "day=${formatTime(instanceTime(), 'yyyy')}"
    >>> list(translate_text("${coord:actualTime()}", {}).remedies())[0].partition(":")[0]
    'coord'
    """
    unknown: dict[str, None] = {}

    def replaced(found: re.Match[str]) -> str:
        return "${" + _translated(found[1], _IN_TEXTS, properties, unknown) + "}"

    return Translation(text=_SUBSTITUTION.sub(replaced, text), untranslated=tuple(unknown))


def translate_window(text: str) -> Translation:
    """Translate an expression of an input or output.

    >>> translate_window("coord:latest(-1)").text
    'latest(-1)'
    """
    unknown: dict[str, None] = {}
    translated = _translated(text, _IN_WINDOWS, {_NOMINAL_TIME: ""}, unknown)
    return Translation(text=translated, untranslated=tuple(unknown))


def _translated(
    expression: str, functions: Mapping[str, str], properties: Mapping[str, str], unknown: dict[str, None]
) -> str:
    def replaced(found: re.Match[str]) -> str:
        name, word = found["function"], found["single"] or found["double"] or found["word"]
        if found["input"]:
            return f"dataIn({found['input']}, '')"
        if name is not None:
            if name not in functions:
                unknown[name] = None
            return functions.get(name, name)
        if word is None or word in properties:
            return word or found[0]
        if word == _NOMINAL_TIME:
            return _FORMATTED
        if word in _REMEDIES:
            unknown[word] = None
        return word

    return _PART.sub(replaced, expression)


ENGINES: Mapping[str, str] = {"oozie": "oozie", "pig": "pig", "hive": "sql", "spark": "spark-submit"}
"""Falcon's engines and the corresponding engines of feed-assets."""

_MEANINGS: Mapping[str, str] = {
    PRIORITY_PROPERTY: "the priority of runs",
    QUEUE_PROPERTY: "a tag of runs, and the queue of YARN",
}
_NOBODY = "NA"
_UNREADABLE = frozenset({"xml-unknown-element", "xml-unknown-attribute", "xml-missing-attribute", "xml-value"})
"""The problems of an element that may be the one that seems to be missing."""
_SPARK_NAMES = {"master": "master", "mode": "deploy_mode", "class": "main_class", "args": "args", "jar": "path"}


def convert(kind: Kind, reading: Reading) -> list[Note]:
    """Convert the values of a document in place. A value that cannot be converted becomes a problem."""
    converter = _Converter(reading)
    converts = {
        Kind.CLUSTER: converter.cluster,
        Kind.DATASOURCE: converter.datasource,
        Kind.FEED: converter.feed,
        Kind.PROCESS: converter.process,
    }
    converts[kind]()
    converter.overrides()
    return converter.notes


class _Converter:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._values = reading.values
        self.notes: list[Note] = []

    def cluster(self) -> None:
        interfaces = self._values.get("interfaces", {})
        is_read = _UNREADABLE.isdisjoint(problem.code for problem in self._reading.problems)
        if self._values.get("interfaces") is not None and "write" not in interfaces and is_read:
            self._problem(
                "xml-missing-element",
                ("interfaces",),
                "<interfaces> contains no <interface> of the type 'write'",
                "Add it; its endpoint is the storage.",
            )
        for name, what in (("write", "storage"), ("registry", "catalog"), ("spark", "spark")):
            endpoint = interfaces.get(name, {}).get("endpoint")
            if endpoint is not None:
                shown = spark_of(endpoint) if name == "spark" else quote(endpoint)
                self._note(NoteKind.MAPPED, f"interface {name} → {what}: {shown}", ("interfaces", name))
                self._reading.place((what,), *self._place_of(("interfaces", name, "endpoint")))
        kept = [name for name in interfaces if name not in ("write", "registry", "spark")]
        if kept:
            message = f"interfaces {', '.join(kept)} are stored but unused"
            self._note(NoteKind.MAPPED, message, ("interfaces",))

    def datasource(self) -> None:
        self._credential(self._values, ())
        for name, interface in self._values.get("interfaces", {}).items():
            self._credential(interface, ("interfaces", name))

    def _credential(self, holder: dict[str, Any], path: FieldPath) -> None:
        credential = holder.get("credential")
        if credential is None:
            return
        here = (*path, "credential")
        written = credential.pop("type", None)
        keys = {
            "password-file": "password_file",
            "password-text": "password",
            "password-alias": "password_alias",
        }
        present = [key for key in keys.values() if key in credential]
        if written in keys and present and present != [keys[written]]:
            message = f"<credential> says that its type is {written}, but contains another kind of password"
            self._problem("xml-choice", (*here, present[0]), message, "Write the matching type.")
        if "password" in credential and "${" not in credential["password"]:
            message = "the password is in the text: write ${env:NAME} and export NAME"
            self._note(NoteKind.CHECK, message, (*here, "password"))

    def feed(self) -> None:
        self._notification()
        groups = self._values.get("groups", "")
        if len(groups.split()) > 1:
            message = f"<groups> is {quote(groups)}: Falcon's schema has no blanks between groups"
            self._problem("xml-value", ("groups",), message, f"Write {''.join(groups.split())}.")
        self._fill(self._values, ())
        for name, entry in self._values.get("clusters", {}).items():
            self._fill(entry, ("clusters", name))
        for name, entry in self._values.get("clusters", {}).items():
            self._place(entry, ("clusters", name))
        self._place(self._values, ())
        self._exports()
        self._current()
        self._archival()
        self._path_timezone()
        if f"{reserved.PREFIX}format" not in self._values.get("properties", {}):
            message = "Falcon knows no file format: parquet is used; write format and schema if it differs"
            self._note(NoteKind.CHECK, message)
        if any(entry.get("type") == "target" for entry in self._values.get("clusters", {}).values()):
            self._replication()

    def _fill(self, holder: dict[str, Any], path: FieldPath) -> None:
        """Fill the properties of the feed into its paths and tables, as Falcon does when it writes Oozie's jobs."""
        properties: dict[str, str] = self._values.get("properties", {})
        for place, key, at in (
            *((holder.get("locations", {}), key, (*path, "locations", key)) for key in holder.get("locations", {})),
            *([(holder, "table", (*path, "table"))] if "table" in holder else []),
        ):
            for name in dict.fromkeys(_VARIABLE.findall(place[key])):
                if name in properties:
                    place[key] = place[key].replace(f"${{{name}}}", properties[name])
                    message = f"{render_path(at)}: ${{{name}}} → {quote(properties[name])}, a property of the feed"
                    self._note(NoteKind.MAPPED, message, at)
                elif name not in list(TimeVariable) and not name.startswith("cluster."):
                    message = f"{render_path(at)}: ${{{name}}} is no property of the feed: add one, or write its value"
                    self._note(NoteKind.CHECK, message, at)

    def _path_timezone(self) -> None:
        """Falcon lets Oozie fill in paths, which does so in UTC, whatever the zone of the feed."""
        zone = self._values.get("timezone")
        with suppress(TimeZoneError):  # another rule refuses it
            if zone is None or is_utc(parse_timezone(zone)):
                return
            self._values["path_timezone"] = "UTC"
            self._reading.place(("path_timezone",), *self._place_of(("timezone",)))
            message = (
                f"the days are those of {zone}, but Falcon writes the times in paths in UTC: with path_timezone UTC "
                "its data are found; change it only if they are at other places"
            )
            self._note(NoteKind.CHECK, message, ("timezone",))

    def _exports(self) -> None:
        """Make exports without a key inserts: Sqoop looks at its mode only if there is `--update-key`."""
        for name, entry in self._values.get("clusters", {}).items():
            export = entry.get("export", {})
            load = export.get("target", {}).get("load", {})
            if "type" not in load or UPDATE_KEY in map(str.lower, export.get("arguments", {})):
                continue
            at = ("clusters", name, "export", "target", "load", "type")
            message = (
                f"load {load['type']} → insert, as Sqoop does without {UPDATE_KEY}; the table must have a unique key "
                f"of exported columns: rows that it has with other values are refused, unless you write {UPDATE_KEY}"
            )
            self._note(NoteKind.MAPPED, message, at)
            load["type"] = "insert"

    def _current(self) -> None:
        """Make a feed whose place has no time one with a current instance. What Falcon counts from its times is left
        out: it would never have removed this place.
        """
        entries = self._values.get("clusters", {})
        holders = [((), self._values), *((("clusters", name), each) for name, each in entries.items())]
        data = [(path, "locations", each.get("locations", {}).get("data")) for path, each in holders]
        places = [each for each in [*data, *((path, "table", each.get("table")) for path, each in holders)] if each[2]]
        is_said = f"{reserved.PREFIX}instances" in self._values.get("properties", {})
        if is_said or not places or any(find_variables(place) != () for _, _, place in places):
            return
        self._values["instances"] = "current"
        path, key, place = places[0]
        at = (*path, key, *(("data",) if key == "locations" else ()))
        self._reading.place(("instances",), *self._place_of(at))
        often = self._values.get("frequency", "frequency")
        message = (
            f"{quote(place)} has no time → instances: current, looked at every {often}: write watch for more often"
        )
        self._note(NoteKind.MAPPED, message, at)
        for path, holder in holders:
            for key in ("retention", "lifecycle", "late_arrival", "sla", "delay"):
                if holder.pop(key, None) is not None:
                    message = f"{render_path((*path, key))} is left out: a current instance has no time to count from"
                    self._note(NoteKind.CHECK, message, (*path, key))

    def _archival(self) -> None:
        """Turn archival stages into retention that archives; as in Falcon, that of the feed counts where a cluster has
        none.
        """
        stages = self._values.get("lifecycle", {})
        shared, at_feed = stages.pop("archival_stage", None), ("lifecycle", "archival_stage")
        for name, entry in self._values.get("clusters", {}).items():
            of_cluster = entry.get("lifecycle", {})
            at = ("clusters", name, *at_feed) if "archival_stage" in of_cluster else at_feed
            stage = of_cluster.pop("archival_stage", shared)
            if not of_cluster and stages:
                entry.pop("lifecycle", None)
            if stage is None or "path" not in stage.get("location", {}) or "retention" not in entry:
                continue
            path = stage["location"]["path"]
            entry["retention"] |= {"action": "archive", "archive_to": path}
            self._move((*at, "location", "path"), ("clusters", name, "retention", "archive_to"))
            message = f"archival-stage → retention of {name}: archive to {quote(path)}"
            self._note(NoteKind.MAPPED, message, at)
            message = (
                f"instances on {name} are archived when their retention limit ends, in Falcon soon after their time: "
                "for early copies declare a target cluster"
            )
            self._note(NoteKind.CHECK, message, at)
            if ignored := sorted(stage.keys() & {"deleteFromSource", "queue", "properties"}):
                message = (
                    f"{', '.join(ignored)} of <archival-stage> have no effect: retention archives, and then removes"
                )
                self._note(NoteKind.CHECK, message, at)

    def _replication(self) -> None:
        """Note how Falcon's replication properties take effect. They stay properties."""
        properties: dict[str, str] = self._values.get("properties", {})
        unreadable = unreadable_properties(properties)
        for name in properties:
            at = ("properties", name)
            if name in unreadable:
                message = f"property {name} {quote(properties[name])} is invalid: the default is used, as in Falcon"
                self._note(NoteKind.CHECK, message, at)
            elif name in PROPERTIES:
                self._note(NoteKind.MAPPED, f"property {name} → replication.{PROPERTIES[name]}", at)
            elif name in WITHOUT_EFFECT:
                self._note(NoteKind.CHECK, f"property {name} has no effect: {WITHOUT_EFFECT[name]}", at)
        if not properties.keys() & {"removeDeletedFiles", f"{reserved.PREFIX}replication"}:
            message = (
                "Falcon removes files at targets that the source no longer has; here that happens if the source was "
                "published by feed-assets: write replication: {removed_files: remove} for all sources"
            )
            self._note(NoteKind.CHECK, message, ("properties",))
        self._note_queue()

    def _place(self, holder: dict[str, Any], path: FieldPath) -> None:
        data = holder.get("locations", {}).get("data")
        if data is not None and "://" not in data and not data.startswith(("/", "$")):
            message = f"{quote(data)} is below the cluster's storage; in Falcon it is below /user/<user>"
            self._note(NoteKind.CHECK, message, (*path, "locations", "data"))

    def process(self) -> None:
        self._notification()
        workflow = self._values.get("workflow")
        spark = self._values.pop("spark_attributes", None)
        if workflow is not None:
            self._workflow(workflow, spark)
        else:
            self._late_inputs(ENGINES["oozie"], None)
        self._expressions(self._values.get("properties", {}))
        self._note_queue()

    def _expressions(self, properties: dict[str, str]) -> None:
        """Translate the functions and variables of Oozie."""
        for name, text in list(properties.items()):
            if not name.startswith(reserved.PREFIX):
                properties[name] = self._translated(translate_text(text, properties), text, ("properties", name))
        for part, keys in (("inputs", ("start", "end")), ("outputs", ("instance",))):
            for name, item in self._values.get(part, {}).items():
                for key in keys:
                    if key in item:
                        item[key] = self._translated(translate_window(item[key]), item[key], (part, name, key))
                if "partition" in item:
                    text = item["partition"]
                    item["partition"] = self._translated(
                        translate_text(text, properties), text, (part, name, "partition")
                    )
        args = self._values.get("workflow", {}).get("args", [])
        args[:] = [
            self._translated(translate_text(text, properties), text, ("workflow", "args", position))
            for position, text in enumerate(args)
        ]

    def _translated(self, translation: Translation, text: str, path: FieldPath) -> str:
        where = render_path(path)
        if translation.text != text:
            message = f"{where}: {quote(text)} → {quote(translation.text)}"
            self._note(NoteKind.MAPPED, message, path)
        for remedy in translation.remedies():
            self._note(NoteKind.UNABLE, f"{where} {quote(text)}: {remedy}", path)
        return translation.text

    def _workflow(self, workflow: dict[str, Any], spark: dict[str, Any] | None) -> None:
        self._split("workflow", "lib")
        written = workflow.get("engine", "oozie")
        workflow["engine"] = ENGINES[written]
        main_path = workflow.get("path")
        self._late_inputs(workflow["engine"], main_path)
        if written == "spark":
            self._spark(workflow, spark)
        elif spark is not None:
            message = f"<spark-attributes> is left out: the engine is {written}"
            self._note(NoteKind.CHECK, message, ("spark_attributes",))
        if written == "hive":
            self._note(NoteKind.MAPPED, f"engine hive → sql: {quote(main_path or '')}", ("workflow",))
            if not str(main_path).endswith(".sql"):
                message = "a SQL workflow is a .sql file: rename the script, or give another with --replace-workflow"
                self._note(NoteKind.CHECK, message, ("workflow", "path"))
        if written in ("hive", "spark"):
            message = "paths of workflows and libraries are relative to the project, or URLs; copy the files there"
            self._note(NoteKind.CHECK, message, ("workflow",))

    def _spark(self, workflow: dict[str, Any], spark: dict[str, Any] | None) -> None:
        if spark is None and self._reading.problems:
            return
        if spark is None:
            message = "<spark-attributes> is missing in <process>: the engine is spark"
            self._problem("xml-missing-element", ("workflow",), message, "Add it after <workflow>, with name and jar.")
            return
        here = ("spark_attributes",)
        for name, key in _SPARK_NAMES.items():
            if name in spark:
                workflow[key] = spark[name]
                self._move((*here, name), ("workflow", key))
        if "jar" in spark:
            jar, *more = (part.strip() for part in spark["jar"].split(","))
            workflow["path"] = jar
            if more:
                workflow["lib"] = [*workflow.get("lib", []), *filter(None, more)]
                self._note(NoteKind.MAPPED, f"{', '.join(more)} of <jar> → lib", ("workflow", "path"))
            self._note(NoteKind.MAPPED, f"engine spark → spark-submit of {quote(jar)}", ("workflow", "path"))
        self._master(workflow)
        options = parse_spark_options(spark.get("spark_opts", ""))
        at = (*here, "spark_opts")
        for fault in options.faults:
            self._problem("xml-spark-opts", at, f"<spark-opts>: {fault}", "Write --conf name=value or --name value.")
        for word in options.ignored:
            self._note(NoteKind.CHECK, f"<spark-opts>: {word} is left out", at)
        submit = dict(options.submit)
        if spark.get("name") not in (None, self._values.get("name")):
            submit["name"] = spark["name"]
        if options.conf:
            workflow["conf"] = dict(options.conf)
            self._move(at, ("workflow", "conf"))
        if submit:
            workflow["submit"] = submit
            self._move(at, ("workflow", "submit"))

    def _master(self, workflow: dict[str, Any]) -> None:
        """Convert masters that include the deploy mode, which Spark no longer accepts."""
        written = workflow.get("master", "")
        if written.lower() in ("yarn-client", "yarn-cluster"):
            mode = written.lower().removeprefix("yarn-")
            workflow["master"] = "yarn"
            workflow.setdefault("deploy_mode", mode)
            self._note(NoteKind.MAPPED, f"master {written} → yarn, deploy_mode {mode}", ("workflow", "master"))

    def _late_inputs(self, engine: str, main_path: object) -> None:
        """Turn the paths for late data into workflows with the engine of the process.

        Differs from Falcon: Falcon requires them and never runs them; here, one that is not the process's own workflow
        is run.
        """
        inputs = self._values.get("late_process", {}).get("inputs", {})
        for name, path in inputs.items():
            inputs[name] = None if path == main_path else {"engine": engine, "path": path}
            here = ("late_process", "inputs", name)
            self._reading.place((*here, "path"), *self._reading.positions.get(here, (1, 1)))
            if inputs[name] is not None:
                message = f"late input {name}: Falcon never runs {quote(path)}; here it runs for late data"
                self._note(NoteKind.CHECK, message, here)

    def _note_queue(self) -> None:
        properties = self._values.get("properties", {})
        for name, meaning in _MEANINGS.items():
            if name in properties:
                self._note(NoteKind.MAPPED, f"property {name} → {meaning}", ("properties", name))

    def overrides(self) -> None:
        """Apply reserved properties, which replace values of the document."""
        properties: dict[str, str] = self._values.get("properties", {})
        for name in [name for name in properties if name.startswith(reserved.PREFIX)]:
            found = reserved.parse_override(name, properties.pop(name))
            at = ("properties", name)
            if isinstance(found, str):
                remedy = "Write feed_assets.<key> and a JSON value."
                self._problem("xml-property", at, f"the property {quote(name)} is reserved: {found}", remedy)
            elif found.path[0] == "kind":
                message = f"the property {quote(name)} is reserved: the root of the document says its kind"
                self._problem("xml-property", at, message, "Remove it.")
            elif not reserved.apply_override(self._values, found):
                message = f"the property {quote(name)} leads through something that is not a map"
                self._problem("xml-property", at, message, "Name a key of the entity.")
            else:
                self._reading.positions[found.path] = self._reading.positions.get(at, (1, 1))

    def _notification(self) -> None:
        """Leave out a notification to nobody, which Falcon writes as `NA`."""
        self._split("notification", "to")
        recipients = self._values.get("notification", {}).get("to")
        if recipients is not None and not any(each.upper() != _NOBODY for each in recipients):
            self._note(NoteKind.CHECK, "<notification> is left out: it names nobody", ("notification",))
            del self._values["notification"]

    def _split(self, part: str, key: str) -> None:
        """Split a list that is written in one attribute."""
        holder = self._values.get(part)
        if isinstance(holder, dict) and isinstance(text := holder.get(key), str):
            holder[key] = [item.strip() for item in text.split(",") if item.strip()]

    def _move(self, old: FieldPath, new: FieldPath) -> None:
        """Move a recorded position to the new path of its value."""
        found = {path: place for path, place in self._reading.positions.items() if path[: len(old)] == old}
        self._reading.positions |= {new + path[len(old) :]: place for path, place in found.items()}

    def _note(self, kind: NoteKind, message: str, path: FieldPath = ()) -> None:
        self.notes.append(Note(kind=kind, message=message, line=self._place_of(path)[0], path=path))

    def _problem(self, code: str, path: FieldPath, message: str, remedy: str) -> None:
        self._reading.note(code, message, remedy, *self._place_of(path))

    def _place_of(self, path: FieldPath) -> tuple[int, int]:
        positions = self._reading.positions
        return next((positions[path[:n]] for n in range(len(path), -1, -1) if path[:n] in positions), (1, 1))
