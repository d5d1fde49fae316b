"""The public door: every type that occurs in an entity is there, by name, in two equal lists."""

import enum
import re
import typing
from pathlib import Path

import pytest
from dagster_shared.libraries import DagsterLibraryRegistry
from pydantic import BaseModel

import feed_assets
from feed_assets import Cluster, Datasource, Feed, Process, build_definitions
from feed_assets.settings import load_settings

SOURCE = Path(feed_assets.__file__).read_text("utf-8")


def types_in(annotation: object, found: set[type]) -> set[type]:
    if isinstance(annotation, type) and issubclass(annotation, (BaseModel, enum.Enum)) and annotation not in found:
        found.add(annotation)
        if issubclass(annotation, BaseModel):
            for each in typing.get_type_hints(annotation, include_extras=True).values():
                types_in(each, found)
    for each in typing.get_args(annotation):
        types_in(each, found)
    return found


def test_whoever_writes_an_entity_in_python_finds_each_of_its_parts() -> None:
    parts: set[type] = set()
    for entity in (Cluster, Datasource, Feed, Process):
        types_in(entity, parts)
    assert len(parts) > 60
    for part in parts:
        assert getattr(feed_assets, part.__name__) is part


def test_the_lists_of_the_door_are_equal_and_every_name_leads_somewhere() -> None:
    typed = re.findall(r"import (\w+) as \1", SOURCE)
    assert sorted(typed) == sorted(feed_assets._HOMES) == sorted(set(feed_assets.__all__) - {"__version__"})
    assert all(getattr(feed_assets, name) is not None for name in feed_assets.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Fed'"):
        _ = feed_assets.Fed


def test_dagster_knows_the_version_of_what_it_has_loaded() -> None:
    build_definitions([], settings=load_settings(environ={}))
    assert DagsterLibraryRegistry.get()["feed-assets"] == feed_assets.__version__
