"""Whether what lies in a run's directory is what is asked for now: the model and the trainer's release.

NeMo-RL loads a checkpoint of another model without a word, and says nothing of its own version in a checkpoint; the
release is therefore written down beside the lease when a run first starts.
"""

import json
from pathlib import Path

from jobs.payload import checkpoints
from jobs.payload.endings import Unrecoverable


def refuse_other_model(checkpoint_dir: Path, model_name: str | None) -> None:
    """Check the model of the newest checkpoint.

    Raises:
        Unrecoverable: it is of another model.
    """
    step = checkpoints.newest(checkpoint_dir)
    found = checkpoints.model_of(checkpoint_dir, step) if step else None
    if model_name and found and found != model_name:
        raise Unrecoverable(
            f"{checkpoint_dir}/step_{step} holds a checkpoint of {found}, and {model_name} is to be trained: "
            "NeMo-RL would load the one into the other. Give the job another name, or move the directory away"
        )


class ReleaseFile:
    """The release that a run was started with, `<run_dir>/supervisor/release.json`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def refuse_other(self, checkpoint_dir: Path, release: str | None) -> None:
        """Check the release against the one that made the checkpoints; without checkpoints any will do.

        Raises:
            Unrecoverable: it is another.
        """
        step = checkpoints.newest(checkpoint_dir)
        found = self._read() if step else None
        if release and found and found != release:
            raise Unrecoverable(
                f"{checkpoint_dir}/step_{step} was made by release {found} of the trainer, and {release} is to go on "
                "from it: releases do not promise to read each other's checkpoints. Use the image of "
                f"{found} again, give the job another name, or delete {self._path} if you know that they fit"
            )

    def write(self, release: str | None) -> None:
        """Note the release that makes the checkpoints from now on.

        Raises:
            OSError: there is no room for it.
        """
        if release and self._read() != release:
            draft = self._path.with_suffix(".draft")
            draft.write_text(json.dumps({"release": release}), encoding="utf-8")
            draft.replace(self._path)

    def _read(self) -> str | None:
        try:
            release = json.loads(self._path.read_text(encoding="utf-8"))["release"]
        except (FileNotFoundError, ValueError, LookupError, TypeError):
            return None
        return release if isinstance(release, str) else None
