import importlib.metadata
import inspect
from collections.abc import Callable

import pytest

import feed_assets
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.errors import DefinitionsError
from feed_assets.loading.process_functions import ProcessFunction, process
from feed_assets.plan.location import declare_location
from tests.instances.harness import feed

CLUSTERS = {"primary": {"validity": {"start": "2013-11-01T00:00Z"}}}
PRIMARY = Cluster(name="primary", storage="file:///data")


@process(
    frequency="hours(1)",
    clusters=CLUSTERS,
    inputs={"clicks": {"feed": "clicks", "start": "now(0,0)", "end": "now(0,0)"}},
    outputs={"counts": {"feed": "counts", "instance": "now(0,0)"}},
    workflow={"lib": ["libs/geo.py"]},
    parallel=2,
    tags={"owner": "ops"},
)
def count_clicks(clicks: list[int]) -> int:
    """Counts them.

    More than once.
    """
    return len(clicks)


def test_the_function_is_still_one_and_has_the_process_it_is_the_work_of() -> None:
    assert isinstance(count_clicks, ProcessFunction)
    assert count_clicks([1, 2]) == 2
    assert count_clicks.__doc__ == "Counts them.\n\n    More than once.\n    "
    assert list(inspect.signature(count_clicks).parameters) == ["clicks"]
    entity = count_clicks.entity
    assert (entity.name, entity.parallel, entity.description) == ("count-clicks", 2, "Counts them.")
    assert entity.workflow.path == f"{__name__}:count_clicks"
    assert entity.workflow.lib == ("libs/geo.py",)


def test_it_stands_where_the_function_stands() -> None:
    source = count_clicks.sources.locate()
    assert source.file.endswith("test_process_functions.py")
    assert source.line == inspect.unwrap(count_clicks).__code__.co_firstlineno


def test_functions_and_entities_make_one_location() -> None:
    location = declare_location([PRIMARY, feed("clicks"), feed("counts"), count_clicks])
    record = location.plan.processes["count-clicks", "primary"]
    assert record.work.path == f"{__name__}:count_clicks"
    assert record.facts.line == count_clicks.sources.locate().line


def test_a_rule_that_is_broken_names_the_file_and_line_of_the_function() -> None:
    place = count_clicks.sources.locate().render()
    with pytest.raises(DefinitionsError, match=f"{place}: process 'count-clicks'") as refusal:
        declare_location([PRIMARY, feed("clicks"), count_clicks])
    assert "'counts'" in str(refusal.value)


def test_a_wrong_field_is_refused_where_it_is_declared_and_in_plain_words() -> None:
    with pytest.raises(DefinitionsError, match=r"test_process_functions\.py:\d+: process 'never': frequency:"):
        process(name="never", frequency="weeks(1)", clusters=CLUSTERS)(_top_level())


def test_a_function_that_no_run_could_import_is_refused() -> None:
    with pytest.raises(DefinitionsError, match="Define it at the top level of its module"):
        process(frequency="hours(1)", clusters=CLUSTERS)(_made())
    script = _top_level()
    script.__module__ = "__main__"
    with pytest.raises(DefinitionsError, match="Move it to a se"):
        process(frequency="hours(1)", clusters=CLUSTERS)(script)


def test_the_decorator_is_public() -> None:
    assert feed_assets.process is process
    assert set(feed_assets.__all__) <= set(dir(feed_assets))


def test_every_public_name_is_what_its_module_defines() -> None:
    assert feed_assets.__version__ == importlib.metadata.version("feed-assets")
    for name in set(feed_assets.__all__) - {"__version__"}:
        assert getattr(feed_assets, name).__name__ == name


def _made() -> Callable[[], None]:
    def inner() -> None: ...

    return inner


def _top_level() -> Callable[[], None]:
    def function() -> None: ...

    function.__qualname__ = "function"
    return function
