"""`python -m sklar` is the command line."""

from sklar.cli import main

if __name__ == "__main__":
    main()
