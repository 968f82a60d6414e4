"""Text files → token shards: `penstock prepare` under the name that older guides use."""

import sys

from penstock.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["prepare", *sys.argv[1:]]))
