"""Turn pydantic errors into one sentence for people, with the position and the next step, never in pydantic's words."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from feed_assets.entities.common import Entity
from feed_assets.entities.fields import describe, to_plain_text
from feed_assets.errors import find_similar
from feed_assets.issues import FieldPath, Finding

_KEY_MARK = "[key]"
_LONGEST_WORD = 100
_EXAMPLES: Mapping[str, str] = {
    "name": "clicks",
    "frequency": "hours(1)",
    "start": "2015-01-01T00:00Z",
    "end": "2016-01-01T00:00Z",
    "validity": "{start: 2015-01-01T00:00Z}",
    "locations": '{data: "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"}',
    "data": "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}",
    "clusters": "{primary: {validity: {start: 2015-01-01T00:00Z}}}",
    "storage": "file:///data",
    "workflow": '{engine: python, path: "jobs:run"}',
    "limit": "days(30)",
    "cut_off": "hours(6)",
    "should_end_in": "hours(4)",
    "low": "hours(2)",
    "high": "hours(4)",
    "feed": "clicks",
    "when": "clicks",
    "or_every": "hours(1)",
    "delay": "minutes(5)",
    "attempts": "3",
    "instance": '"now(0,0)"',
    "policy": "periodic",
    "inputs": "[clicks]",
    "directory": "/in/clicks",
    "asset": "[team, orders]",
}
_SHAPES: Mapping[str, str] = {
    "model_type": "a map",
    "model_attributes_type": "a map",
    "dict_type": "a map",
    "mapping_type": "a map",
    "tuple_type": "a list",
    "frozen_set_type": "a list",
    "list_type": "a list",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a number",
    "string_type": "text",
}


_INSTEAD = {"start": "take", "end": "take"}
"""Keys that may be missing if another is written."""


def explain(error: ValidationError, entity_type: type[Any]) -> Iterable[tuple[FieldPath, str, Finding]]:
    """Yield the path, the code and the message of each mistake of an entity, without what only follows from others."""
    mistakes = error.errors(include_url=False)
    for details in _without_consequences(mistakes, entity_type):
        path = tuple(part for part in details["loc"] if part != _KEY_MARK)
        yield path, _code(details), _finding(details, path, entity_type)


def _without_consequences(mistakes: Sequence[ErrorDetails], entity_type: type[Entity]) -> Iterator[ErrorDetails]:
    """Yield the mistakes without those that only follow from others.

    These are mistakes below a wrong key, of a list whose items are wrong, of derived values, and the lack of a key that
    is misspelt.
    """
    places = [details["loc"] for details in mistakes]
    wrong = {place[:length] for place in places for length in range(1, len(place) + 1)}
    around = {place[:length] for place in places for length in range(1, len(place))}
    wrong_keys = {place[:-1] for place in places if place[-1:] == (_KEY_MARK,)}
    misspelt = {
        (*place[:-1], closest(str(place[-1]), keys_of(type_at(entity_type, place[:-1]))))
        for details, place in zip(mistakes, places, strict=True)
        if details["type"] == "extra_forbidden"
    }
    for details, place in zip(mistakes, places, strict=True):
        if place[-1:] != (_KEY_MARK,) and any(place[:length] in wrong_keys for length in range(1, len(place) + 1)):
            continue
        origin = entity_type.derived_keys.get(str(place[0])) if place else None
        if details["type"] == "missing" and origin is not None:
            origin = origin[:1]
        if origin is not None and (origin in wrong or origin in misspelt):
            continue
        if (details["type"] == "too_short" and place in around) or (details["type"] == "missing" and place in misspelt):
            continue
        instead = _INSTEAD.get(str(place[-1])) if details["type"] == "missing" else None
        if instead is not None and (*place[:-1], instead) in misspelt:
            continue
        yield details


def _code(details: ErrorDetails) -> str:
    match details["type"]:
        case "extra_forbidden":
            return "unknown-key"
        case "missing":
            return "missing-key"
        case other if other in _SHAPES or "message" in details.get("ctx", {}):
            return other.replace("_", "-")
        case _:
            return "value"


def _finding(details: ErrorDetails, path: FieldPath, entity_type: type[Entity]) -> Finding:
    value: object = details["input"]
    context: Mapping[str, Any] = details.get("ctx", {})
    where = render_path(path)
    prefix = f"{where}: " if where else ""
    match details["type"]:
        case "extra_forbidden":
            return _unknown_key(path, entity_type)
        case "missing":
            return _missing_key(path, entity_type)
        case _ if value is None and where:
            return Finding(message=f"{where} has no value", remedy="Give it one, or remove the line.")
        case _ if "message" in context:
            return Finding(message=f"{prefix}{context['message']}", remedy=context["remedy"])
        case "enum" if details["loc"][-1] == _KEY_MARK:
            prefix = f"{render_path(path[:-1])}: "
            return _not_a_choice(
                prefix, value, _required_type(next(iter(get_args(type_at(entity_type, path[:-1]))), None))
            )
        case "enum":
            return _not_a_choice(prefix, value, type_at(entity_type, path))
        case "too_short":
            return Finding(message=f"{where} is empty", remedy="Write at least one entry.")
        case "greater_than_equal":
            least = context["ge"]
            return Finding(message=f"{prefix}{describe(value)} is too small", remedy=f"Write at least {least}.")
        case "less_than_equal":
            most = context["le"]
            return Finding(message=f"{prefix}{describe(value)} is too big", remedy=f"Write at most {most}.")
        case kind:
            shape = _SHAPES.get(kind, "another value")
            example = _example(path) or (_form(path, value, type_at(entity_type, path)) if shape == "a map" else None)
            keys = keys_of(type_at(entity_type, path)) if shape == "a map" else []
            remedy = f"Write {shape}{f' with keys of {alternatives(keys)}' if keys else ''}."
            remedy = f"Write for example {example}." if example else remedy
            return Finding(message=f"{prefix}{shape} is expected, not {describe(value)}", remedy=remedy)


def _unknown_key(path: FieldPath, entity_type: type[Entity]) -> Finding:
    key, known = str(path[-1]), keys_of(type_at(entity_type, path[:-1]))
    where = render_path(path[:-1]) or article(entity_type.kind)
    close = closest(key, known)
    if key.endswith((")", "'")):
        remedy = 'In braces an expression with commas needs quotes: {start: "now(0,0)"}.'
        return Finding(message=f"{key!r} is not a key of {where}", remedy=remedy)
    below = None if close else _closest_below(key, type_at(entity_type, path[:-1]))
    remedy = f"Its keys are {', '.join(known)}."
    if close or below:
        remedy = f"Did you mean {close!r}?" if close else f"Did you mean {below}?"
    return Finding(message=f"{key!r} is not a key of {where}", remedy=remedy)


def _closest_below(key: str, model: object) -> str | None:
    """Return the key that was probably meant, if it belongs one level below: `'retention' in clusters.<name>`."""
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None
    for name, field in model.model_fields.items():
        annotation = _required_type(field.annotation)
        is_map = isinstance(origin := get_origin(annotation), type) and issubclass(origin, Mapping)
        close = closest(key, keys_of(_required_type(_step(annotation, "") if is_map else annotation)))
        if close:
            return f"{close!r} in {field.alias or name}{'.<name>' if is_map else ''}"
    return None


def _missing_key(path: FieldPath, entity_type: type[Entity]) -> Finding:
    key = str(path[-1])
    where = render_path(path[:-1]) or article(entity_type.kind)
    example = _example(path)
    remedy = f"Add it, for example {example}." if example else "Add it."
    return Finding(message=f"{key!r} is missing in {where}", remedy=remedy)


def _example(path: FieldPath) -> str | None:
    key = path[-1]
    if path[0] == "inputs" and key in ("start", "end"):
        return f'{key}: "now(0,0)"'
    return f"{key}: {_EXAMPLES[str(key)]}" if key in _EXAMPLES else None


def _form(path: FieldPath, value: object, model: object) -> str | None:
    """Return the map that was probably meant: the required keys, or the first one that takes the written value."""
    if not (isinstance(model, type) and issubclass(model, BaseModel)) or isinstance(value, list | Mapping):
        return None
    keys = {field.alias or name: field for name, field in model.model_fields.items()}
    taking = [key for key, field in keys.items() if key in _EXAMPLES and _takes(field, value)]
    needed = [key for key, field in keys.items() if field.is_required()]
    needed += ["start", "end"] if path[0] == "inputs" else []
    shown = needed or taking[:1]
    examples = {key: example for key in shown if (example := _example((path[0], key))) is not None}
    if not shown or len(examples) < len(shown):
        return None
    of_value = next((key for key in shown if key in taking), None)
    parts = (f"{key}: {to_plain_text(value)}" if key == of_value else example for key, example in examples.items())
    return f"{path[-1]}: {{{', '.join(parts)}}}"


def _takes(field: FieldInfo, value: object) -> bool:
    annotation: Any = Annotated[field.annotation, *(field.metadata or [None])]
    try:
        TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return False
    return True


def _not_a_choice(prefix: str, value: object, choices: object) -> Finding:
    names = [str(choice) for choice in choices] if isinstance(choices, type) and issubclass(choices, StrEnum) else []
    close = closest(str(value), names)
    remedy = f"Did you mean {close!r}?" if close else f"Write {alternatives(names)}."
    return Finding(message=f"{prefix}{describe(value)} is not one of {', '.join(names)}", remedy=remedy)


def closest(text: str, known: Iterable[str]) -> str | None:
    """Return the name in `known` that is most similar to `text`, ignoring case.

    >>> closest("Retentoin", ["retention", "type"])
    'retention'
    """
    if len(text) > _LONGEST_WORD:
        return None
    by_folded = {name.casefold().replace("-", "_"): name for name in known}
    found = find_similar(text.casefold().replace("-", "_"), by_folded, n=1, cutoff=0.7)
    return by_folded[found[0]] if found else None


def alternatives(names: Iterable[str]) -> str:
    """Join names to a choice in words.

    >>> alternatives(["a", "b", "c"])
    'a, b or c'
    """
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def article(noun: str) -> str:
    """Return a noun with its article: `a feed`."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def render_path(path: FieldPath) -> str:
    """Render a path as people write it.

    >>> render_path(("workflow", "args", 0))
    'workflow.args[0]'
    """
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def keys_of(model: object) -> list[str]:
    """Return the keys that a model accepts in files, in the order of the model."""
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def type_at(model: object, path: FieldPath) -> object:
    """Return the type of the value at a path below a model; None if the path leads nowhere."""
    current: object = model
    for part in path:
        current = _step(_required_type(current), part)
    return _required_type(current)


def _step(current: object, part: str | int) -> object:
    if isinstance(current, type) and issubclass(current, BaseModel):
        for name, field in current.model_fields.items():
            if part in (name, field.alias):
                return field.annotation
        return None
    origin, arguments = get_origin(current), get_args(current)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return arguments[1]
    return arguments[0] if origin in (tuple, frozenset) else None


def _required_type(annotation: object) -> object:
    """Strip `Annotated` and `| None` from a type."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _required_type(get_args(annotation)[0])
    if origin in (Union, UnionType):
        options = [option for option in get_args(annotation) if option is not NoneType]
        return _required_type(options[0]) if len(options) == 1 else annotation
    return annotation
