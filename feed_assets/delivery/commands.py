"""Send letters to commands: one process each, with the JSON document on its standard input."""

import json
import os
import shlex

from feed_assets.delivery import exchange
from feed_assets.delivery.exchange import run_bounded
from feed_assets.delivery.port import DELIVERED, Letter, Outcome, Sender, Verdict
from feed_assets.masking import mask

KEY_VARIABLE = "FEED_ASSETS_KEY"

_MOST_SHOWN = 200


class CommandSender(Sender):
    """Runs a command without a shell. It has taken the letter if it ends with 0."""

    def __init__(self, address: str) -> None:
        self._words = shlex.split(address.removeprefix("command:"))

    def send(self, letter: Letter) -> Outcome:
        environ = {**os.environ, KEY_VARIABLE: letter.key}
        try:
            code, error = run_bounded(self._words, json.dumps(letter.document).encode(), environ)
        except OSError as exc:
            return Outcome(verdict=Verdict.AWAY, error=mask(f"{type(exc).__name__}: {exc}"))
        if code == 0:
            return DELIVERED
        said = " ".join(error[-_MOST_SHOWN:].decode("utf-8", "replace").split())
        end = f"it did not end within {exchange.SECONDS:g} s" if code is None else f"it ended with {code}"
        return Outcome(verdict=Verdict.FAILED, error=mask(f"{end}: {said}".rstrip(": ")))
