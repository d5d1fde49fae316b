"""Globs on paths of files, as declarations write them."""

import re

_CLASS = re.compile(r"\[[!^]?\]?[^\]]*\]")  # "[a-z]", "[!0-9]"


def find_glob_fault(glob: str) -> str | None:
    r"""Return why a glob cannot be intended; None if it is valid.

    >>> find_glob_fault("day=*/{a,b"), find_glob_fault("[]"), find_glob_fault("[z-a]"), find_glob_fault("a}")
    ("its '{' is not closed", "its '[' is not closed", "'[z-a]' is not a set of characters", None)
    >>> find_glob_fault("a\\"), find_glob_fault("a\\\\")
    ('it ends with a lone backslash', None)
    """
    depth, position = 0, 0
    while position < len(glob):
        one = glob[position]
        if one == "[":
            found = _CLASS.match(glob, position)
            if found is None or found.group() in ("[]", "[!]", "[^]"):
                return "its '[' is not closed"
            try:
                re.compile(translate_glob(found.group()))
            except re.error:
                return f"{found.group()!r} is not a set of characters"
            position = found.end()
            continue
        if one == "\\" and position + 1 == len(glob):
            return "it ends with a lone backslash"
        depth = depth + 1 if one == "{" else max(0, depth - 1) if one == "}" else depth
        position += 2 if one == "\\" else 1
    return "its '{' is not closed" if depth else None


def translate_glob(glob: str) -> str:
    r"""Return a glob as the regular expression of the paths that it names.

    >>> translate_glob("day=*/{a,b}?.csv"), translate_glob("**/[!x]")
    ('day=[^/]*/(?:a|b)[^/]\\.csv', '.*/[^x]')
    """
    text, depth, position = "", 0, 0
    while position < len(glob):
        one = glob[position]
        if glob.startswith("**", position):
            text, position = f"{text}.*", position + 2
            continue
        if one == "[" and (found := _CLASS.match(glob, position)):
            inner = found.group()[1:-1]
            negated = inner[:1] in ("!", "^")
            text += f"[{'^' if negated else ''}{inner[negated:].replace('[', chr(92) + '[')}]"
            position = found.end()
            continue
        match one:
            case "*":
                text += "[^/]*"
            case "?":
                text += "[^/]"
            case "{":
                text, depth = f"{text}(?:", depth + 1
            case "}" if depth:
                text, depth = f"{text})", depth - 1
            case "," if depth:
                text += "|"
            case "\\" if position + 1 < len(glob):
                position += 1
                text += re.escape(glob[position])
            case _:
                text += re.escape(one)
        position += 1
    return text + ")" * depth
