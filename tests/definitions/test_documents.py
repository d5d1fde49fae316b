import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from feed_assets.definitions.errors import DefinitionStoreError
from feed_assets.definitions.folder import Splice, edit_text, find_documents, only_document, split_documents
from feed_assets.loading.bundles import parse_file
from feed_assets.loading.entity_files import EntityFile
from feed_assets.loading.yaml_nodes import iter_documents
from feed_assets.log.definitions.records import DocumentFormat
from tests.definitions.harness import NO_VALUES

KEYS = ("a", "b", "c", "new")
_bodies = st.sampled_from(
    [
        "kind: feed\nname: {}\n",
        "# about it\nkind: feed\nname: {}\n\n",
        "kind: feed\r\nname: {}\r\n",
        "{{kind: feed, name: {}}}\n",
        "kind: feed\nname: {}\ndescription: |\n  --- not a marker\n   ...\n",
        'kind: feed\nname: {}\ndescription: "a\n  --- b"\n',
        "kind: feed\nname: {}\ndescription: 'über\u2028  all'\n",
    ]
)
_markers = st.sampled_from(
    ["---\n", "--- # next\n", "---   \n", "---\r\n", "...\n---\n", "...\n# between\n---\n", "--- "]
)
_heads = st.sampled_from(["", "# all of it\n", "\ufeff", "# all\n---\n", "%YAML 1.1\n---\n", "---\n"])


@st.composite
def _texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A file of one to three documents with keys a, b, c, and the text around them."""
    names = KEYS[: draw(st.integers(1, 3))]
    text = draw(_heads)
    for position, name in enumerate(names):
        marker = draw(_markers) if position else ""
        body = draw(_bodies).format(name)
        assume(marker != "--- " or body.startswith("{"))
        text += marker + body
    return text + draw(st.sampled_from(["", "", "---\n", "...\n", "# the end\n"])), list(names)


def _names(text: str) -> list[str]:
    documents = list(iter_documents(text.removeprefix("\ufeff")))
    assert [problem for document in documents for problem in document.problems] == []
    return [document.value["name"] for document in documents if isinstance(document.value, dict)]


def _places(text: str) -> dict[str, tuple[int, int, int, int]]:
    parsed = parse_file(EntityFile(name="a.yaml", content=text.encode()), NO_VALUES)
    found = find_documents(parsed, text)
    return {key[1]: (span.start, span.body_start, span.body_end, span.end) for key, span in found.items()}


@given(_texts())
def test_every_document_is_found_where_it_stands(given_text: tuple[str, list[str]]) -> None:
    text, names = given_text
    places = _places(text)
    assert list(places) == names
    for name, (_, start, end, _) in places.items():
        assert _names(text[start:end]) == [name]


@given(_texts(), st.data())
def test_a_document_is_replaced_and_all_else_stays_as_it_was(
    given_text: tuple[str, list[str]], data: st.DataObject
) -> None:
    text, names = given_text
    name = data.draw(st.sampled_from(names))
    new = data.draw(_bodies).format("new")
    span = next(span for key, span in _spans(text).items() if key == name)

    edited = edit_text(text, [Splice(span=span, body=new)])

    assert edited is not None
    assert _names(edited) == ["new" if other == name else other for other in names]
    assert edited.startswith(text[: span.body_start])
    assert edited.endswith(text[span.body_end :])
    assert new in edited


@given(_texts(), st.data())
def test_a_document_is_removed_and_all_else_stays_as_it_was(
    given_text: tuple[str, list[str]], data: st.DataObject
) -> None:
    text, names = given_text
    name = data.draw(st.sampled_from(names))
    span = _spans(text)[name]

    edited = edit_text(text, [Splice(span=span, body=None)])

    others = [other for other in names if other != name]
    if edited is None:
        assert others == []
    else:
        assert _names(edited) == others
        assert edited == text[: span.start] + text[span.end :]


@given(_texts(), _bodies)
def test_a_document_is_appended_behind_what_was_there(given_text: tuple[str, list[str]], body: str) -> None:
    text, names = given_text
    edited = edit_text(text, [Splice(span=None, body=body.format("new"))])
    assert edited is not None
    assert edited.startswith(text)
    assert _names(edited) == [*names, "new"]


def _spans(text: str) -> dict:  # type: ignore[type-arg]
    parsed = parse_file(EntityFile(name="a.yaml", content=text.encode()), NO_VALUES)
    return {key[1]: span for key, span in find_documents(parsed, text).items()}


@given(st.text(alphabet="-. \n\r#ab:\u2028\x85\ufeff", max_size=40))
def test_any_text_is_split_into_documents_that_do_not_overlap(text: str) -> None:
    end = 0
    for span in split_documents(text):
        assert end <= span.start <= span.body_start <= span.body_end <= span.end <= len(text)
        end = span.end


@given(st.lists(_bodies, min_size=1, max_size=3), st.data())
def test_several_edits_of_one_file_do_not_disturb_one_another(bodies: list[str], data: st.DataObject) -> None:
    text = "---\n".join(body.format(name) for body, name in zip(bodies, KEYS, strict=False))
    names = list(KEYS[: len(bodies)])
    fates = {name: data.draw(st.sampled_from(["stays", "goes", "changes"])) for name in names}
    spans = _spans(text)
    splices = [Splice(span=None, body="name: last\n")]
    for name, fate in fates.items():
        if fate != "stays":
            body = None if fate == "goes" else f"name: {name}-2\n"
            splices.append(Splice(span=spans[name], body=body))

    edited = edit_text(text, splices)

    wanted = [name if fates[name] == "stays" else f"{name}-2" for name in names if fates[name] != "goes"]
    assert edited is not None
    assert _names(edited) == [*wanted, "last"]


def test_a_bare_document_after_an_end_marker_stays_apart() -> None:
    text = "name: a\n---\nname: b\n...\nname: c\n"
    spans = {yaml.safe_load(text[s.body_start : s.body_end])["name"]: s for s in split_documents(text)}
    assert edit_text(text, [Splice(span=spans["b"], body=None)]) == "name: a\n...\nname: c\n"


def test_a_file_of_which_nothing_but_markers_is_left_goes() -> None:
    assert edit_text("---\nname: a\n...\n", [Splice(span=split_documents("---\nname: a\n...\n")[0], body=None)]) is None


def test_a_comment_above_the_first_marker_outlives_its_document() -> None:
    text = "# ours\n---\nname: a\n"
    assert edit_text(text, [Splice(span=split_documents(text)[0], body=None)]) == "# ours\n"


def test_an_xml_file_is_one_document() -> None:
    text = '<?xml version="1.0"?>\n<feed/>\n'
    assert only_document(text, DocumentFormat.XML) == text


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n---\n", "name: a\n---\nname: b\n"])
def test_a_text_of_no_or_several_documents_is_refused(text: str) -> None:
    with pytest.raises(DefinitionStoreError, match="documents"):
        only_document(text, DocumentFormat.YAML)
