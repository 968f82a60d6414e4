"""Where work runs: this process or a pool of processes. Knows nothing of what the work is.

An engine is a `concurrent.futures.Executor`; `Crew` feeds it.
"""

from penstock.engines.crew import Crew
from penstock.engines.local import InProcess
from penstock.engines.pool import process_pool, tune_process

__all__ = ["Crew", "InProcess", "process_pool", "tune_process"]
