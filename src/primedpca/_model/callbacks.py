"""Who is told how a fit goes: ``verbose``, a function, and scikit-learn's callbacks (from 1.9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from primedpca._model.attributes import attributes
from primedpca._solve.history import Find, Listener, Row, line

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """Nothing to set up or to tear down; one frame of the stack, as there."""

        @wraps(method)
        def fit(*args: Any, **options: Any) -> Any:
            return method(*args, **options)

        return fit

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """What says that there are none."""

        def set_callbacks(self, *callbacks: Any) -> Any:
            """Refuse; ``verbose`` takes a function with any version."""
            raise ImportError(
                "callbacks need scikit-learn 1.9 or later; give a function as `verbose`, which is "
                "called with a row of `history_` after every pass."
            )


__all__ = ["Watched", "with_callbacks"]


class Watched(CallbackSupportMixin):
    """Progress of an estimator that has ``verbose``, ``tol`` and ``history_``."""

    verbose: Any
    tol: float
    history_: list[Row]
    n_features_in_: int

    @contextmanager
    def _watched(
        self,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any,
        rows: int,
        fit: Any,
    ) -> Iterator[Listener]:
        """Tell callbacks of the fit as a whole; gives the listener for its passes.

        Of several processes that make one ``fit``, the one that ``speaks`` prints.
        """
        context: Any = None
        about = {"X": X, "y": y}
        about["metadata"] = None if sample_weight is None else {"sample_weight": sample_weight}
        if hasattr(self, "_skl_callbacks") or hasattr(self, "_parent_callback_ctx"):
            # How many passes it will take is not known before.
            context = self._init_callback_context(max_subtasks=None)
            context.call_on_fit_task_begin(estimator=self, **about)

        def tell(history: list[Row], find: Find) -> bool:
            self.history_ = history  # callbacks look there
            if fit.speaks:
                self._say(history[-1])
            if context is None:
                return False
            passed = context.subcontext(task_name="pass")
            passed.call_on_fit_task_begin(estimator=self, **about)
            found = self._reconstruction(find, rows)
            return bool(
                passed.call_on_fit_task_end(
                    estimator=self, reconstruction_attributes=found, **about
                )
            )

        yield fit.agreed(tell)
        if context is not None:
            fitted = {name: value for name, value in vars(self).items() if name.endswith("_")}
            context.call_on_fit_task_end(estimator=self, reconstruction_attributes=fitted, **about)

    def _say(self, row: Row) -> None:
        if callable(self.verbose):
            self.verbose(row)
        elif self.verbose:
            print(line(row, self.tol))

    def _reconstruction(self, find: Find, rows: int) -> Callable[[], dict[str, Any] | None]:
        """What makes the fitted attributes as if the fit had ended now, for who asks."""

        def make() -> dict[str, Any] | None:
            found = find()
            if found is None:
                return None
            k = found.explained_variance.size
            return attributes(found, k, (rows, self.n_features_in_))

        return make
