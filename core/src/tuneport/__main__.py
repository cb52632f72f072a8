"""`python -m tuneport` is `tp`."""

from tuneport.cli.main import main

main()
