"""Translate Oozie's expressions in Falcon's documents, and say what to write for those without a counterpart."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SUBSTITUTION = re.compile(r"(?<!\$)\$\{((?:[^{}'\"]|'[^']*'|\"[^\"]*\")*)\}")  # ${coord:nominalTime()}
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
