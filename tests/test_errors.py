"""The tree of exceptions is one, and is drawn as it is."""

import pickle
import re
from importlib import import_module
from pathlib import Path

import feed_assets
from feed_assets import errors
from feed_assets.context.errors import ListenRefusedError
from feed_assets.errors import FeedAssetsError

_LINE = re.compile(r"^(?P<branches>[│├└─ ]*)(?P<name>\w+Error)\b", re.MULTILINE)  # "│   ├── FrequencyError"


def drawn() -> dict[str, str | None]:
    """Each exception in the drawing with the one that it hangs on."""
    path: list[str] = []
    parents: dict[str, str | None] = {}
    for line in _LINE.finditer(errors.__doc__ or ""):
        del path[len(line["branches"]) // 4 :]
        assert line["name"] not in parents, f"{line['name']} is drawn twice"
        parents[line["name"]] = path[-1] if path else None
        path.append(line["name"])
    return parents


def below(base: type[Exception]) -> dict[str, str | None]:
    """Each exception of the project below a class with its base."""
    parents: dict[str, str | None] = {}
    for each in base.__subclasses__():
        if each.__module__.startswith("feed_assets."):
            parents |= {each.__name__: base.__name__} | below(each)
    return parents


def test_the_drawing_of_the_tree_is_true() -> None:
    for module in sorted(Path(next(iter(feed_assets.__path__))).rglob("errors.py")):
        import_module(
            ".".join(["feed_assets", *module.relative_to(next(iter(feed_assets.__path__))).with_suffix("").parts])
        )
    assert drawn() == {"FeedAssetsError": None} | below(FeedAssetsError)


def test_an_error_keeps_the_facts_from_which_it_was_built_and_a_copy_has_them_too() -> None:
    error = ListenRefusedError(address="127.0.0.1:9", reason="it is taken")
    assert {name: getattr(error, name) for name in ("address", "reason")} == vars(error)
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)
