from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import fsspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from feed_assets.entities.common import Kind
from feed_assets.entities.errors import DefinitionsError
from feed_assets.loading.bundles import LoadedBundle, load_files, usable_bundle
from feed_assets.loading.entity_files import EntityFile, Values
from feed_assets.loading.errors import LocationUnreadableError
from feed_assets.validation.rules import validate_bundle
from tests.entities.samples import BASE, bundle
from tests.loading.bundles import load_bundle

NO_VALUES = Values(variables={}, environ={})
AS_OF = datetime(2015, 6, 1, tzinfo=UTC)


def _write(folder: Path, name: str, *labels: str, **changes: object) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    documents = [{"kind": label.split()[0], **BASE[label], **changes} for label in labels]
    file.write_text(yaml.safe_dump_all(documents, sort_keys=False), "utf-8")
    return file


def _load(location: object, **environ: str) -> LoadedBundle:
    return load_bundle(str(location), variables={}, environ=environ)


def test_files_of_a_folder_are_read_in_order_and_hidden_ones_skipped(tmp_path: Path) -> None:
    _write(tmp_path, "b/feeds.yml", "feed clicks", "feed summary")
    _write(tmp_path, "a.yaml", "cluster primary", "cluster backup", "datasource shop", "process daily")
    _write(tmp_path, ".hidden.yaml", "cluster primary")
    _write(tmp_path, ".hidden/c.yaml", "cluster primary")
    (tmp_path / "notes.txt").write_text("kind: no")
    loaded = _load(tmp_path, SHOP_PASSWORD="open-sesame")
    assert loaded.issues == ()
    assert loaded.bundle == bundle({"datasource shop/credential/password": "open-sesame"})
    assert [source.file for source in loaded.sources.values()] == [str(tmp_path / "a.yaml")] * 4 + [
        str(tmp_path / "b/feeds.yml")
    ] * 2


def test_one_file_is_read(tmp_path: Path) -> None:
    file = _write(tmp_path, "entities.txt", "cluster primary")
    assert _load(file).bundle.names(Kind.CLUSTER) == ("primary",)


def test_files_are_named_as_seen_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, "entities/a.yaml", "cluster primary")
    monkeypatch.chdir(tmp_path)
    assert _load(tmp_path / "entities").sources["cluster", "primary"].render() == "entities/a.yaml:1"


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.rm("/definitions", recursive=True)


def test_a_url_is_read_like_a_folder(memory: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    content = _write(tmp_path, "a.yaml", "cluster primary").read_bytes()
    memory.pipe({"/definitions/x/a.yaml": content, "/definitions/.b/c.yaml": content, "/definitions/d.txt": b"no"})
    loaded = _load("memory://definitions")
    assert loaded.issues == ()
    assert loaded.sources["cluster", "primary"].render() == "memory://definitions/x/a.yaml:1"
    assert _load("memory://definitions/x/a.yaml").bundle == loaded.bundle


@pytest.mark.parametrize("location", ["nowhere", "memory://nowhere", "nosuchscheme://x"])
def test_a_place_that_cannot_be_read_is_an_error(location: str, tmp_path: Path) -> None:
    place = location if "://" in location else str(tmp_path / location)
    with pytest.raises(LocationUnreadableError, match=place):
        _load(place)


def test_files_that_are_not_text_or_too_big_are_issues() -> None:
    files = [
        EntityFile(name="a.yaml", content=b"a: 1\nb: \xff\n"),
        EntityFile(name="b.yaml", content=b"#" * 17_000_000),
    ]
    loaded = load_files(files, NO_VALUES)
    assert [(issue.code, issue.source and issue.source.render()) for issue in loaded.issues] == [
        ("file-encoding", "a.yaml:2"),
        ("file-too-big", "b.yaml"),
    ]


def test_a_byte_order_mark_does_no_harm() -> None:
    content = b"\xef\xbb\xbfkind: cluster\nname: a\nstorage: file:///data\n"
    assert load_files([EntityFile(name="a.yaml", content=content)], NO_VALUES).issues == ()


def test_settings_are_no_entities(tmp_path: Path) -> None:
    """The folder of a project is a folder of entities, too."""
    for name in ("feed_assets.yaml", "home/dagster.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("schedule: automatic\n")
    _write(tmp_path, "entities/a.yaml", "cluster primary")
    loaded = _load(tmp_path)
    assert (loaded.bundle.names(Kind.CLUSTER), loaded.issues) == (("primary",), ())


def test_of_two_entities_of_one_name_neither_is_used(tmp_path: Path) -> None:
    _write(tmp_path, "a.yaml", "cluster primary")
    _write(tmp_path, "b.yaml", "cluster primary")
    loaded = _load(tmp_path)
    assert loaded.bundle.entities == ()
    assert loaded.broken == {("cluster", "primary")}
    assert [issue.code for issue in loaded.issues] == ["duplicate-entity"]


def test_what_depends_on_something_broken_is_left_out_and_says_why(tmp_path: Path) -> None:
    _write(tmp_path, "a.yaml", "cluster primary", "cluster backup", "feed summary", "process daily")
    _write(tmp_path, "b.yaml", "feed clicks", frequency="weeks(1)")
    loaded = _load(tmp_path)
    found = validate_bundle(loaded.bundle, loaded.sources)
    assert found == []
    usable, blocked = usable_bundle(loaded, found)
    assert usable.names(Kind.PROCESS) == ()
    assert usable.names(Kind.FEED) == ("summary",)
    assert [issue.message for issue in blocked] == ["it is left out, blocked by errors of feed 'clicks'"]


def test_variables_and_environment_are_put_into_clusters(tmp_path: Path) -> None:
    options = {"key": "${env:KEY}", "literal": "$${ROOT}", "deep": {"root": ["${ROOT}"]}}
    _write(tmp_path, "a.yaml", "cluster primary", storage="file://${ROOT}/x", storage_options=options)
    loaded = load_bundle(str(tmp_path), variables={"ROOT": "/data"}, environ={"KEY": "k", "ROOT": "/other"})
    primary = loaded.bundle.get_cluster("primary")
    assert primary.storage == "file:///data/x"
    assert primary.storage_options == {"key": "k", "literal": "${ROOT}", "deep": {"root": ("/data",)}}


def test_a_variable_that_settings_do_not_have_comes_from_the_environment(tmp_path: Path) -> None:
    _write(tmp_path, "a.yaml", "cluster primary", storage="file://${ROOT}")
    assert _load(tmp_path, ROOT="/env").bundle.get_cluster("primary").storage == "file:///env"


def test_other_references_of_feeds_are_left_alone(tmp_path: Path) -> None:
    _write(tmp_path, "a.yaml", "feed clicks", properties={"a": "${YEAR} ${x} ${env:A}"})
    assert _load(tmp_path, A="1").bundle.get_feed("clicks").properties == {"a": "${YEAR} ${x} 1"}


def test_values_of_the_environment_are_not_shown_in_messages(tmp_path: Path) -> None:
    _write(tmp_path, "a.yaml", "cluster primary", storage="${env:PLACE}")
    (issue,) = _load(tmp_path, PLACE="user:secret@host").issues
    assert issue.message == "storage: '${env:PLACE}' is not a URL"


@pytest.mark.parametrize(
    ("variables", "shown"), [({}, "${env:DOOR_PASSWORD}"), ({"DOOR_PASSWORD": "user:s3cret"}, "***")]
)
def test_a_variable_with_the_name_of_a_password_is_hidden_from_the_first_use(
    tmp_path: Path, variables: dict[str, str], shown: str
) -> None:
    _write(tmp_path, "a.yaml", "cluster primary", storage="${DOOR_PASSWORD}")
    environ = {"DOOR_PASSWORD": "user:s3cret"}
    (issue,) = load_bundle(str(tmp_path), variables=variables, environ=environ).issues
    assert issue.message == f"storage: '{shown}' is not a URL"


def test_the_digest_changes_with_files_and_with_the_values_they_use(tmp_path: Path) -> None:
    _write(tmp_path, "a.yaml", "cluster primary", storage="file://${env:ROOT}")
    first = _load(tmp_path, ROOT="/a", OTHER="1").digest
    assert _load(tmp_path, ROOT="/a", OTHER="2").digest == first
    assert _load(tmp_path, ROOT="/b").digest != first
    _write(tmp_path, "b.yaml", "cluster backup")
    assert _load(tmp_path, ROOT="/a").digest != first


def test_definitions_errors_list_their_issues() -> None:
    loaded = load_files([EntityFile(name="a.yaml", content=b"kind: fed\n")], NO_VALUES)
    error = DefinitionsError(location="entities", issues=loaded.issues)
    assert str(error) == (
        "entities: 1 issue was found. Correct the values below.\n"
        "  a.yaml:1: 'fed' is not a kind of entity. Did you mean 'feed'?"
    )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(label=st.sampled_from(sorted(BASE)), depth=st.integers(1, 4), value=VALUES, data=st.data())
def test_no_content_raises_and_every_refusal_is_a_sentence(
    label: str, depth: int, value: object, data: st.DataObject
) -> None:
    document = yaml.safe_load(yaml.safe_dump({"kind": label.split()[0], **BASE[label]}))
    place = document
    for _ in range(depth):
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or not place[key]:
            break
        place = place[key]
    place[key] = value
    content = yaml.safe_dump(document, allow_unicode=True).encode()
    loaded = load_files([EntityFile(name="a.yaml", content=content)], NO_VALUES)
    validate_bundle(loaded.bundle, loaded.sources)
    for issue in loaded.issues:
        assert "Input" not in issue.message
        assert issue.remedy
        assert issue.source is not None
        assert issue.source.line
