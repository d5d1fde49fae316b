"""Schemas of OpenLineage's events and facets, strict: what the specification does not name is refused.

They follow from the classes of `openlineage-python` 1.54.0 (Apache-2.0), which its authors generate from the
specification (OpenLineage 2-0-2, and each facet in the version that its `_schemaURL` names), with the fields that are
required, and the formats that the specification gives to some texts. Each facet stands where facets of its kind do.
"""

import json
import re
import types
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit
from uuid import UUID

import attr
from jsonschema import Draft202012Validator, FormatChecker
from openlineage.client import event_v2, facet_v2
from openlineage.client.generated import base

_PLAIN = {str: "string", int: "integer", bool: "boolean", float: "number"}
_FORMATS = {
    **{name: {"format": "date-time"} for name in ("eventTime", "nominalStartTime", "nominalEndTime")},
    **{name: {"format": "uri"} for name in ("producer", "schemaURL", "_producer", "_schemaURL")},
    "runId": {"format": "uuid"},
}
_SIGNED = ("producer", "schemaURL", "_producer", "_schemaURL")
_FACETS = {
    found.__name__: found
    for module in vars(facet_v2).values()
    if isinstance(module, types.ModuleType)
    for found in vars(module).values()
    if isinstance(found, type) and found.__name__.endswith("Facet")
}
_OF_ANY_SIDE = {"DataQualityAssertionsDatasetFacet"}
"""The specification derives them from facets of inputs, which outputs do not have."""
_CONDITIONS = [facet_v2.base_subset_dataset.LocationSubsetCondition]
_checker = FormatChecker(())


@_checker.checks("date-time", ValueError)
def _is_moment(text: object) -> bool:
    return datetime.fromisoformat(str(text)).tzinfo is not None


@_checker.checks("uri", ValueError)
def _is_uri(text: object) -> bool:
    return bool(urlsplit(str(text)).scheme)


@_checker.checks("uuid", ValueError)
def _is_uuid(text: object) -> bool:
    return str(UUID(str(text))) == text


def check_event(event: dict[str, Any]) -> dict[str, Any]:
    """Require that an event is one of OpenLineage, with all its facets; return it."""
    json.dumps(event)
    kind_of_event = getattr(event_v2, str(event["schemaURL"]).rpartition("/")[2])
    assert event["schemaURL"] == kind_of_event._get_schema()
    _validate(event, kind_of_event)
    datasets = [event.get("dataset"), *event.get("inputs", ()), *event.get("outputs", ())]
    places = [(event.get("run"), base.RunFacet), (event.get("job"), base.JobFacet)]
    for place, of in [*places, *((each, base.DatasetFacet) for each in datasets)]:
        of_side = {"inputFacets": base.InputDatasetFacet, "outputFacets": base.OutputDatasetFacet}
        for facets, cls in {"facets": of, **of_side}.items():
            for key, facet in ((place or {}).get(facets) or {}).items():
                kind = str(facet["_schemaURL"]).rpartition("/")[2]
                if key.startswith("feedAssets_"):  # one of ours: a facet like any other, with a reason
                    assert _is_uri(facet["_schemaURL"])
                    assert facet.keys() == {"_producer", "_schemaURL", "reason"}
                    continue
                assert key == _key_of(kind), f"the facet {kind} stands under {key}"
                assert issubclass(_FACETS[kind], cls) or kind in _OF_ANY_SIDE, f"{kind} stands in {facets}"
                assert facet["_schemaURL"] == _FACETS[kind]._get_schema(), "another version of the facet is meant"
                _validate(facet, _FACETS[kind])
    return event


def _key_of(kind: str) -> str:
    """The key of a facet by the specification: `nominalTime` of NominalTimeRunFacet, `sql` of SQLJobFacet."""
    name = re.sub(r"(Run|Job|InputDataset|OutputDataset|Dataset)Facet$", "", kind)
    name = re.sub(r"^(Input|Output)(?=Subset)", "", name)
    return {"SQL": "sql", "DatasetVersion": "version"}.get(name) or name[0].lower() + name[1:]


def _validate(values: dict[str, Any], cls: type) -> None:
    errors = [f"{error.json_path}: {error.message}" for error in _validator(cls).iter_errors(values)]
    assert not errors, f"{cls.__name__}: {errors}"


@cache
def _validator(cls: type) -> Draft202012Validator:
    defined: dict[str, dict[str, Any]] = {}
    return Draft202012Validator({**_schema(cls, defined), "$defs": defined}, format_checker=_checker)


def _schema(hint: Any, defined: dict[str, dict[str, Any]]) -> dict[str, Any]:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(each, defined) for each in inner if each is not type(None)]}
    if origin is list:
        return {"type": "array", "items": _schema(inner[0], defined)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(inner[1], defined)}
    if origin is Literal:
        return {"enum": list(inner)}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [each.value for each in hint]}
    if getattr(hint, "__name__", "") == "BaseSubsetCondition":
        return {"anyOf": [_schema(each, defined) for each in _CONDITIONS]}
    if not attr.has(hint) or hint.__name__ in ("RunFacet", "JobFacet", "DatasetFacet") or _is_base(hint):
        return {}
    name = f"{hint.__module__}.{hint.__name__}"
    if name in defined:
        return {"$ref": f"#/$defs/{name}"}
    defined[name] = {}
    hints = get_type_hints(hint)
    fields = attr.fields(hint)
    properties = {each.name: {**_schema(hints[each.name], defined), **_FORMATS.get(each.name, {})} for each in fields}
    needed = [each.name for each in fields if each.default is attr.NOTHING or each.name in _SIGNED]
    needed += ["eventType"] if hint is event_v2.RunEvent else []
    whole = {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}
    defined[name].update(whole)
    return {"$ref": f"#/$defs/{name}"}


def _is_base(hint: type) -> bool:
    return hint.__name__ in ("InputDatasetFacet", "OutputDatasetFacet")
