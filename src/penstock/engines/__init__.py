"""Where work runs: this process or a pool of processes. Knows nothing of what the work is.

An engine is a `concurrent.futures.Executor`; `Crew` feeds it.
"""

from penstock.engines.crew import Crew
from penstock.engines.local import InProcess
from penstock.engines.pool import keep_freed_memory, process_pool

__all__ = ["Crew", "InProcess", "keep_freed_memory", "process_pool"]
