"""Parser of expressions: text to a tree of calls. The syntax is in `expression.lark`; nothing is evaluated.

`expressions` (times) and `text` (strings) give the functions their meaning. Importing Lark is slow, so `expressions`
imports this module only to parse a text; a cached plan needs no parsing.
"""

from functools import lru_cache
from importlib.resources import files

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from feed_assets.errors import shorten
from feed_assets.timing.calls import Argument, Call, Word
from feed_assets.timing.errors import ExpressionError

MOST_CHARACTERS = 400
"""The upper limit of an expression; it also bounds how deeply calls are nested."""
MOST_DIGITS = 18
_SHOWN = 60


@lru_cache(maxsize=8192)
def parse_call(text: str) -> Call:
    """Parse one function call.

    Raises:
        ExpressionError: the text is not a function call; the error carries the position.

    >>> call = parse_call("dateOffset(instanceTime(), -1, 'DAY')")
    >>> call.name, call.arguments[1:], call.arguments[0].name
    ('dateOffset', (-1, 'DAY'), 'instanceTime')
    """
    if len(text) > MOST_CHARACTERS:
        reason = f"it has more than {MOST_CHARACTERS:,} characters"
        raise ExpressionError(text=shorten(text, _SHOWN), position=MOST_CHARACTERS, reason=reason)
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as exc:
        raise _refusal(text, exc) from exc
    for number in tree.scan_values(lambda value: isinstance(value, Token) and value.type == "INTEGER"):
        if len(number) > MOST_DIGITS:
            reason = f"the number has more than {MOST_DIGITS} digits"
            raise ExpressionError(text=text, position=number.start_pos or 0, reason=reason)
    (call,) = tree.children
    assert isinstance(call, Tree)
    return _call_of(call)


@lru_cache(maxsize=1)
def _parser() -> Lark:
    grammar = files("feed_assets.timing").joinpath("expression.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", maybe_placeholders=False)


def _call_of(tree: Tree[Token]) -> Call:
    name, *arguments = tree.children
    assert isinstance(name, Token)
    return Call(
        name=str(name),
        arguments=tuple(_argument_of(argument) for argument in arguments),
        position=name.start_pos or 0,
        argument_positions=tuple(_position_of(argument) for argument in arguments),
    )


def _argument_of(node: Token | Tree[Token]) -> Argument:
    if isinstance(node, Tree):
        return Word(name=str(node.children[0])) if node.data == "word" else _call_of(node)
    return int(node) if node.type == "INTEGER" else str(node)[1:-1]


def _position_of(node: Token | Tree[Token]) -> int:
    while isinstance(node, Tree):
        node = node.children[0]
    return node.start_pos or 0


def _refusal(text: str, error: UnexpectedInput) -> ExpressionError:
    match error:
        case UnexpectedCharacters():
            position, reason = error.pos_in_stream or 0, f"{text[error.pos_in_stream or 0]!r} is not expected here"
        case UnexpectedToken(token=token) if token.type != "$END":
            position, reason = token.start_pos or 0, f"{str(token)!r} is not expected here"
        case UnexpectedToken() | UnexpectedEOF():
            position, reason = len(text), "the text ends too early" if text.strip() else "the text is empty"
        case _:
            position, reason = error.pos_in_stream or 0, "it cannot be read"
    return ExpressionError(text=text, position=position, reason=f"{reason}; an expression has the form now(0,-60)")
