"""``python -m trainscope``: the command line, for launchers that start a module."""

from __future__ import annotations

from trainscope.cli.main import main

if __name__ == "__main__":
    main()
