"""`python -m penstock` is `penstock`."""

from penstock.cli.main import entry

if __name__ == "__main__":
    entry()
