"""Waiting for GPUs: until all are there and the nodes have been the same for a while.

All of them, as NeMo-RL gives up about a minute after it finds too few; the same for a while, as a node that is about
to go, or is gone and not yet known to be, would hang its set-up.
"""

from jobs.payload.clock import Clock
from jobs.payload.endings import Unrecoverable
from jobs.payload.event_lines import EventWriter
from jobs.payload.interrupts import Interrupts
from jobs.payload.nodes import NodeTable, NodeView
from jobs.payload.options import Options
from jobs.payload.workers import Workers

_TICK_S = 1.0
_STATUS_EVERY_S = 60.0


class Capacity:
    """The GPUs that training needs, and the way to them."""

    def __init__(
        self,
        options: Options,
        *,
        events: EventWriter,
        nodes: NodeTable,
        workers: Workers | None,
        clock: Clock,
        interrupts: Interrupts,
    ) -> None:
        self._options = options
        self._events = events
        self._nodes = nodes
        self._workers = workers
        self._clock = clock
        self._interrupts = interrupts

    def wait(self, *, is_first: bool, step: int) -> NodeView:
        """Ask for the workers, and wait until their GPUs are there and still.

        Args:
            is_first: whether this Ray job has not had them yet; it says how long to wait.
            step: where the run would go on, for the message.

        Raises:
            Unrecoverable: they did not come in time.
            StopRequested: somebody wants an end; without training there is no checkpoint to wait for.
        """
        options, began = self._options, self._clock.monotonic()
        limit_name = "max_capacity_wait_s" if is_first else "max_recovery_wait_s"
        limit_s: float = getattr(options, limit_name)
        needed = options.nodes * options.gpus_per_node
        known: frozenset[str] = frozenset()
        still_since = told_at = -float("inf")
        told = None
        asked = self._workers is None
        while True:
            self._interrupts.obey()
            self._interrupts.at_checkpoint()
            if self._workers and not asked:
                asked = self._workers.try_scale(options.nodes)
            view, now = self._nodes.view(), self._clock.monotonic()
            if known != (known := frozenset(view.addresses)):
                still_since = now
            enough = view.has(options.nodes, options.gpus_per_node)
            if enough and now - still_since >= options.settle_s:
                return view
            status = ("settling" if enough else "gpus", sum(view.gpus.values()), len(view.addresses))
            if status != told or now - told_at >= _STATUS_EVERY_S:
                self._events.emit(
                    "waiting",
                    reason=status[0],
                    gpus_alive=status[1],
                    gpus_needed=needed,
                    nodes_alive=status[2],
                    waited_s=round(now - began, 1),
                    limit_s=limit_s,
                )
                told, told_at = status, now
            if now - began > limit_s:
                refused = "" if asked or not self._workers else f" ({self._workers.problem})"
                raise Unrecoverable(
                    f"only {status[1]} of {needed} GPUs on {status[2]} nodes after {limit_s:.0f} s{refused}. Run "
                    f"`up` again when there is capacity, or wait longer with job.limits.{limit_name}; the run goes on "
                    f"from step {step}"
                )
            self._interrupts.pause(_TICK_S)
