"""`python3 -m twin.toolchain`: build the twin's programs. Needs no installed package."""

import signal
import sys

from jobs.errors import RlstackError
from twin.toolchain import tool_path
from twin.toolchain.build import build_all, say
from twin.toolchain.programs import MODULES


def main() -> int:
    """Build what is missing, then print where each program is."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        build_all()
        for module in MODULES:
            for program in module.packages:
                print(f"{program}\t{tool_path(program)}")
    except RlstackError as error:
        say(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted; type the command again: it goes on from there")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
