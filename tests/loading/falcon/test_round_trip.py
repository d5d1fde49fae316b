import pytest
from hypothesis import example, given, settings

from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.errors import DefinitionsError
from feed_assets.entities.feed import Feed
from feed_assets.loading.entity_documents import iter_entities
from feed_assets.loading.entity_files import Values
from feed_assets.loading.falcon.writing import render_falcon
from tests.loading.entity_strategies import ENTITIES
from tests.loading.falcon.falcon_schema import find_faults

NO_VALUES = Values(variables={}, environ={})


WITHOUT_TIME = {"name": "A", "frequency": "minutes(1)", "table": "a,b"}
WITHOUT_TIME |= {"clusters": {"A": {"validity": {"start": "1901-01-01T00:00Z", "end": "1901-01-01T00:00Z"}}}}


@settings(max_examples=150, deadline=None)
@given(entity=ENTITIES)
@example(entity=Feed.model_validate(WITHOUT_TIME))
def test_every_entity_survives_falcon(entity: AnyEntity) -> None:
    text = render_falcon(entity)
    assert find_faults(text) == []
    (document,) = iter_entities("a.xml", text, NO_VALUES)
    assert [issue.render() for issue in document.issues] == []
    assert document.entity == entity
    assert render_falcon(document.entity) == text


def test_what_would_not_be_read_again_is_not_written() -> None:
    cluster = Cluster(name="a", storage="file:///data", description="x" * 1024**2)
    with pytest.raises(DefinitionsError, match="cluster 'a': it cannot be written as a Falcon document"):
        render_falcon(cluster)


def moved(**transfer: object) -> Feed:
    validity = {"start": "2015-01-01T00:00Z"}
    on = {"primary": {"type": "source", "validity": validity, **transfer}}
    return Feed.model_validate({"name": "orders", "frequency": "days(1)", "clusters": on})


def test_an_import_says_in_falcons_xml_how_it_extracts() -> None:
    for extract, kind, policy in (
        ({}, "full", "snapshot"),
        ({"history": True, "consistent": False}, "full", "snapshot"),
        ({"type": "incremental", "delta_column": "n"}, "incremental", "append"),
    ):
        feed = moved(**{"import": {"source": {"name": "shop", "table": "orders", "extract": extract}}})
        text = render_falcon(feed)
        assert f'<extract type="{kind}">' in text
        assert f"<mergepolicy>{policy}</mergepolicy>" in text
        assert find_faults(text) == []
        (document,) = iter_entities("a.xml", text, NO_VALUES)
        assert document.entity == feed
