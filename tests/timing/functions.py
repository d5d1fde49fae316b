"""The value of one function call, as the conformance cases write it: without `${}` around it."""

from feed_assets.timing.text import TextContext, render_text


def evaluate_function(text: str, context: TextContext) -> str:
    """What `${text}` becomes."""
    return render_text(f"${{{text}}}", context)
