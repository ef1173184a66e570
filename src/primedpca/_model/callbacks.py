"""Progress reporting: ``verbose``, a function, and scikit-learn's callbacks (from 1.9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from primedpca._model.attributes import attributes
from primedpca._solve.history import Find, line
from primedpca._solve.history import Row as Record

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


__all__ = ["CallbackSupportMixin", "watched", "with_callbacks"]


@contextmanager
def watched(
    model: Any, rows: int, speaks: bool, **about: Any
) -> Iterator[Callable[[list[Record], Find], bool]]:
    """Tell the callbacks of a model about its fit as a whole; gives the listener for its passes.

    Parameters
    ----------
    model : PrimedPCA
    rows : int
        Of the data.
    speaks : bool
        Whether this process prints, of several that make one fit.
    **about
        ``X``, ``y`` and ``metadata``, which callbacks are shown.
    """
    context: Any = None
    if hasattr(model, "_skl_callbacks") or hasattr(model, "_parent_callback_ctx"):
        # How many passes it will take is not known before.
        context = model._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=model, **about)

    def tell(history: list[Record], find: Find) -> bool:
        model.history_ = history  # callbacks look there
        if speaks and callable(model.verbose):
            model.verbose(history[-1])
        elif speaks and model.verbose:
            print(line(history[-1], model.tol))
        if context is None:
            return False
        passed = context.subcontext(task_name="pass")
        passed.call_on_fit_task_begin(estimator=model, **about)

        def reconstruct() -> dict[str, Any] | None:
            """Fitted attributes as if the fit had ended now, for callbacks that ask."""
            found = find()
            if found is None:
                return None
            shape = (rows, model.n_features_in_)
            return attributes(found, found.explained_variance.size, shape)

        return bool(
            passed.call_on_fit_task_end(
                estimator=model, reconstruction_attributes=reconstruct, **about
            )
        )

    yield tell
    if context is not None:
        fitted = {name: value for name, value in vars(model).items() if name.endswith("_")}
        context.call_on_fit_task_end(estimator=model, reconstruction_attributes=fitted, **about)
