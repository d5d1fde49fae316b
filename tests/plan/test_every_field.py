"""A plan names every field that changes: each field of each kind of entity, changed alone."""

import types
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from feed_assets.entities.bundle import ENTITY_TYPES, Bundle, entity_digest
from feed_assets.entities.common import Entity, Kind
from feed_assets.entities.fields import Size
from feed_assets.entities.maps import FrozenMap
from feed_assets.issues import FieldPath
from feed_assets.plan.differences import diff_bundles
from feed_assets.plan.rendering import PlanDifference, render_difference
from feed_assets.timing.sequence import Frequency, Unit

NOW = datetime(2013, 11, 3, tzinfo=UTC)

VALUES: dict[type, tuple[Any, Any]] = {
    str: ("one", "two"),
    object: ("one", "two"),
    bool: (True, False),
    int: (7, 8),
    float: (0.25, 0.75),
    datetime: (NOW, NOW + timedelta(days=1)),
    Frequency: (Frequency(unit=Unit.DAYS, count=2), Frequency(unit=Unit.DAYS, count=3)),
    Size: (Size(1024), Size(2048)),
}


def two_values(annotation: Any) -> tuple[Any, Any]:
    """Two different values of a type; models have every field."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return two_values(arguments[0])
    if origin in (Union, types.UnionType):
        return two_values(next(each for each in arguments if each is not type(None)))
    if origin in (tuple, frozenset, list):
        one, other = two_values(arguments[0])
        count = 1 if Ellipsis in arguments else len(arguments)
        return origin([one] * count), origin([other] * count)
    if origin is not None and issubclass(origin, Mapping):
        (key, _), (one, other) = two_values(arguments[0]), two_values(arguments[1])
        return FrozenMap({key: one}), FrozenMap({key: other})
    if issubclass(annotation, BaseModel):
        return full(annotation), None
    if issubclass(annotation, Enum):
        members = list(annotation)
        return members[-1], members[0]
    return VALUES[annotation]


def full(model: type[BaseModel]) -> BaseModel:
    return model.model_construct(**{name: two_values(info.annotation)[0] for name, info in model.model_fields.items()})


def iter_changed(value: Any, annotation: Any) -> Iterator[tuple[FieldPath, Any]]:
    """Yield the value with one field changed or left out, for each field below it, with the path of the field.

    Maps lose their only key, and gain one without a value if they may.
    """
    if isinstance(value, BaseModel):
        for name, info in type(value).model_fields.items():
            below = [((), info.get_default(call_default_factory=True))] if not info.is_required() else []
            for path, changed in [*iter_changed(getattr(value, name), info.annotation), *below]:
                yield (info.alias or name, *path), value.model_copy(update={name: changed})
    elif isinstance(value, Mapping):
        ((key, item),) = value.items()
        yield (), FrozenMap({})
        if isinstance(item, BaseModel):
            if types.NoneType in get_args(get_args(annotation)[1]):
                yield (), FrozenMap({key: item, "two": None})
            for path, changed in iter_changed(item, None):
                yield (str(key), *path), FrozenMap({key: changed})
        else:
            yield (str(key),), FrozenMap({key: two_values(annotation)[1][key]})
    else:
        one, other = two_values(annotation)
        if one != other:  # some fields have one value only: what Falcon writes
            yield (), other


def named(before: Entity, after: Entity) -> tuple[list[FieldPath], str]:
    """The paths that a plan has, and its text."""
    bundles = Bundle(entities=(before,)), Bundle(entities=(after,))  # type: ignore[arg-type]
    entities = diff_bundles(*bundles)
    difference = PlanDifference(as_of=NOW, entities=entities, processes=(), instances=())
    return [field.change.path for each in entities for field in each.fields], render_difference(difference)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_plan_names_each_field_that_is_changed_alone(kind: Kind) -> None:
    before = full(ENTITY_TYPES[kind])
    assert isinstance(before, Entity)
    count = 0
    for path, after in iter_changed(before, None):
        if path == ("name",):
            continue
        paths, text = named(before, after)
        assert entity_digest(before) == entity_digest(after) or any(each[: len(path)] == path for each in paths), path
        assert not paths or str(path[-1]) in text or "cluster one" in text, path
        count += 1
    assert count > 15
