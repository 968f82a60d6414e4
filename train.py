"""Trains a model: `penstock train` under the name that older guides use."""

import sys

from penstock.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
