"""What can go wrong, as a tree.

    PenstockError                 anything a user can act on; the command line prints it without a traceback
    ├── ConfigError               the words of a command or the fields of a configuration do not fit (exit code 2)
    ├── MissingExtra              an optional dependency is not installed; names the `pip install` line
    ├── InputError                the text given to us is missing, empty, truncated or mostly bad
    ├── DiskFull                  the disk cannot hold the work; nothing half-written is left
    ├── WorkerDied                a worker process ended without an answer
    ├── TokenizerError            a tokenizer cannot be built, or does not fit the dataset
    └── DatasetError              a prepared dataset is not what it says
        ├── ManifestError         dataset_metadata.json or an index is malformed or names something it must not
        └── ChecksumError         bytes on disk differ from the manifest

Catches nothing: a room raises one of these where the user's next step is known.
"""


class PenstockError(Exception):
    """A failure whose message says what, where, expected, got and what to do next."""


class ConfigError(PenstockError):
    """The words of a command, or the fields of a configuration, do not fit together."""


class MissingExtra(PenstockError):
    """An optional dependency is needed and is not installed."""


class InputError(PenstockError):
    """The text given to us is missing, empty, truncated or mostly bad."""


class DiskFull(PenstockError):
    """The disk cannot hold the work."""


class WorkerDied(PenstockError):
    """A worker process ended without an answer."""


class TokenizerError(PenstockError):
    """A tokenizer cannot be built, or is not the one a dataset was made with."""


class DatasetError(PenstockError):
    """A prepared dataset is not what it says it is."""


class ManifestError(DatasetError):
    """A manifest or an index is malformed, or names something that it must not."""


class ChecksumError(DatasetError):
    """Bytes on disk differ from what the manifest says."""
