"""`python -m rlcore` is `rlcore`."""

from rlcore.cli.main import main

if __name__ == "__main__":
    main()
