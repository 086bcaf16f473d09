"""How many parameters a model has, as far as its name says so: sizes of checkpoints are estimated from that."""

import re

_UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_SIZE = re.compile(r"(?:(?P<experts>\d+)x)?(?P<number>\d+(?:\.\d+)?)(?P<unit>[kmbt])", re.IGNORECASE)


def named_parameters(model_name: str) -> float | None:
    """Parameters that a model's name states, `Qwen/Qwen2.5-72B-Instruct` for one 72e9; none where it states none.

    The largest number counts, for a name may hold the active parameters or the length of the context as well.
    `8x7B` counts as 56e9, the most that such a mixture of experts can have.

    Args:
        model_name: name on the Hugging Face hub, or a path.
    """
    words = re.split(r"[-_]", model_name.rstrip("/").rpartition("/")[2])
    return max(
        (
            int(match["experts"] or 1) * float(match["number"]) * _UNITS[match["unit"].lower()]
            for match in map(_SIZE.fullmatch, words)
            if match
        ),
        default=None,
    )
