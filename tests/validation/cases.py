"""For every rule: changes of the sample entities that it accepts, and changes that it refuses with this text.

Each module of rules has its cases in `rules/*.yaml`. All files are read as one document, so that what `shared.yaml`
names by an anchor can be changed everywhere. `REMOVED` takes a key away, `!like feed summary` copies a sample.
"""

import copy
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.entities.samples import BASE, REMOVED

Changes = dict[str, Any]
PRIMARY = "feed clicks/clusters/primary"
BACKUP = "feed clicks/clusters/backup"
DAILY = "process daily"
LIMIT = "retention.policy.agebaseddelete.limit"
FOLDER = Path(__file__).parent / "rules"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One rule on two bundles; `text` is the complaint about the bad one, without the place."""

    code: str
    good: Changes = field(default_factory=dict)
    bad: Changes
    text: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.code}{'-' if self.name else ''}{self.name}"


class _Loader(yaml.CSafeLoader):
    pass


_Loader.add_implicit_resolver("!removed", re.compile("REMOVED$"), ["R"])
_Loader.add_constructor("!removed", lambda *_: REMOVED)
_Loader.add_constructor("!like", lambda loader, node: copy.deepcopy(BASE[loader.construct_scalar(node)]))


def _read() -> tuple[dict[str, Any], tuple[Case, ...]]:
    """Return what the cases share, by its name, and the cases."""
    shared = FOLDER / "shared.yaml"
    paths = (shared, *sorted(set(FOLDER.glob("*.yaml")) - {shared}))
    by_code = yaml.load("".join(path.read_text() for path in paths), _Loader)
    names = by_code.pop("shared")
    return names, tuple(Case(code=code, **case) for code, cases in by_code.items() for case in cases)


SHARED, CASES = _read()
ONLY_PRIMARY: dict[str, Any] = SHARED["on-primary"]
ORDERS: dict[str, Any] = SHARED["signal"]
LOADED: dict[str, Any] = SHARED["loaded"]


def another(label: str, **changes: Any) -> dict[str, Any]:
    """A copy of a sample with other values."""
    return {**BASE[label], **changes}


def tables(**more: Any) -> Changes:
    """The feed `clicks` as a table, with more changes."""
    return {**SHARED["table"], **more}


def mirror(source: object, target: object, name: str = "models", **more: Any) -> Changes:
    """A process that mirrors; sides are directories, or maps."""
    sides = {
        "source": source if isinstance(source, dict) else {"directory": source},
        "target": target if isinstance(target, dict) else {"cluster": "backup", "directory": target},
    }
    process = {**SHARED["mirror"]["process models"], "name": name, **more}
    return {f"process {name}": {**process, "workflow": {"engine": "directory-mirror", "mirror": sides}}}


def load(trigger: dict[str, Any], **fields: Any) -> Changes:
    """Orders that come, and a process that loads what comes by a trigger."""
    return {**SHARED["load"], "process load": {**SHARED["load"]["process load"], "trigger": trigger, **fields}}


def ring(trigger: dict[str, Any] | None = None, **fields: Any) -> Changes:
    """The process writes what it loads from, beside the orders."""
    inputs = {"old": {"feed": "loaded", "take": "new"}}
    outputs = {"new": {"feed": "loaded", "instance": "now(0,0)"}}
    process = load({} if trigger is None else trigger, **{"inputs": inputs, "outputs": outputs, **fields})
    return {**process, "feed loaded": LOADED}
