"""An event loop beside the thread that trains."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="vllm-servers", daemon=True
        )
        self._thread.start()

    def spawn(self, work: Any) -> Future[Any]:
        """Begin a coroutine there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self, last: Sequence[Coroutine[Any, Any, None]] = ()) -> None:
        """Cancel what goes on, do what is left to do, and stop; safe to call twice.

        Args:
            last: What is left; its failures do not matter any more.
        """
        if not self._thread.is_alive():
            return

        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            while others:
                for task in others:
                    task.cancel()
                _, others = await asyncio.wait(others, timeout=1.0)
            await asyncio.gather(*last, return_exceptions=True)

        with contextlib.suppress(TimeoutError):
            self.spawn(end()).result(30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)
