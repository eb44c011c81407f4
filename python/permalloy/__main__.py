"""The ``permalloy`` command: looks at graphs in text form; see ``permalloy --help``."""

from __future__ import annotations

import sys

from . import _core


def main() -> None:
    status, text = _core.command(sys.argv[1:])
    try:
        print(text, end="", file=sys.stderr if status else sys.stdout, flush=True)
    except BrokenPipeError:  # a reader that stops early, such as `head`
        sys.stdout = None
    sys.exit(status)


if __name__ == "__main__":
    main()
