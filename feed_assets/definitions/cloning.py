"""The text of a definition under another name: all else stays as it is written, with its comments and its order."""

from collections.abc import Iterator, Sequence

import yaml

from feed_assets.definitions.contents import StoredDocument
from feed_assets.definitions.errors import DefinitionStoreError
from feed_assets.definitions.written import find_entity
from feed_assets.entities.common import label_of
from feed_assets.loading.yaml_nodes import parse_scalar
from feed_assets.loading.yaml_writer import render_yaml
from feed_assets.state.definition_records import DocumentFormat

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NAME = "name"


def clone_text(document: StoredDocument, name: str, replacements: Sequence[tuple[str, str]] = ()) -> str:
    """Return the YAML document of an entity under another name, with texts replaced in its keys and values. A Falcon
    document becomes YAML.

    Raises:
        DefinitionStoreError: it cannot be written anew, or a text to replace does not occur.
    """
    text = document.text
    if document.format is DocumentFormat.XML:
        entity = find_entity(text, document.format)
        if entity is None:
            raise _refusal(document, "its XML is valid only with values from outside", "Write it as YAML first.")
        text = render_yaml(entity, has_references=True)
    scalars = sorted(set(_iter_scalars(yaml.compose(text, Loader=_Loader))), reverse=True)
    names = [text[start:end] for start, end, is_name in scalars if is_name]
    if not names or names[0].startswith("&"):
        raise _refusal(document, "its name stands in an anchor", "Write the name itself.")
    unused = dict(replacements)
    for start, end, is_name in scalars:
        old = new = text[start:end]
        for before, after in () if is_name else replacements:
            if before in new:
                new = new.replace(before, after)
                unused.pop(before, None)
        if is_name:
            new = name if parse_scalar(name) == name else f'"{name}"'
        if new != old:
            text = text[:start] + new + text[end:]
    if unused:
        remedy = "Write a text that its keys or values have."
        raise _refusal(document, f"{', '.join(map(repr, unused))} does not occur in its definition", remedy)
    return text


def _iter_scalars(node: yaml.Node | None, *, is_top: bool = True) -> Iterator[tuple[int, int, bool]]:
    """Yield the places of the keys and values of a document, and whether each is the name of the entity."""
    match node:
        case yaml.ScalarNode():
            yield node.start_mark.index, node.end_mark.index, False
        case yaml.SequenceNode():
            for item in node.value:
                yield from _iter_scalars(item, is_top=False)
        case yaml.MappingNode():
            for key, value in node.value:
                yield from _iter_scalars(key, is_top=False)
                if is_top and key.value == _NAME and isinstance(value, yaml.ScalarNode):
                    yield value.start_mark.index, value.end_mark.index, True
                elif not (is_top and key.value == "kind"):
                    yield from _iter_scalars(value, is_top=False)


def _refusal(document: StoredDocument, reason: str, next_step: str) -> DefinitionStoreError:
    return DefinitionStoreError(location=label_of(document.key), reason=reason, next_step=next_step)
