"""The lock around the engine, and objects that release a model when they are closed."""

from __future__ import annotations

import os
import threading
from types import TracebackType

engine_lock = threading.RLock()  # the kernels allow one caller at a time
# a child that is forked while another thread computes would wait for that thread, which it lacks
os.register_at_fork(
    before=engine_lock.acquire,
    after_in_parent=engine_lock.release,
    after_in_child=engine_lock.release,
)


class Closable:
    """A context manager that releases file and memory. `close` may be called twice."""

    _is_closed = False

    def close(self) -> None:
        """Release the file and the memory. Any later use raises ValueError."""
        with engine_lock:
            self._is_closed = True
            self._release()

    def _release(self) -> None:
        raise NotImplementedError

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"the {type(self).__name__.lower()} is closed")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
