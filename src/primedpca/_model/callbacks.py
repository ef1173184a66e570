"""Progress reporting: lines, a user's function, and scikit-learn's callbacks (from 1.9)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np

from primedpca._core.notebook import InPlace, in_notebook
from primedpca._core.process import lock_of
from primedpca._model.attributes import unchanged_by_errors
from primedpca._model.notebook_html import progress_html
from primedpca._solve.history import Find, line
from primedpca._solve.history import Row as Record
from primedpca.result import Decomposition

try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback import with_callbacks as torn_down
except ImportError:  # scikit-learn before 1.9

    def torn_down(method: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a method without any set-up.

        The wrapper adds one stack frame, as scikit-learn's does, so that warnings point to the
        same line with every version.
        """

        @wraps(method)
        def fit(*args: Any, **options: Any) -> Any:
            return method(*args, **options)

        return fit

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stand-in for scikit-learn versions without callbacks."""

        def set_callbacks(self, *callbacks: Any) -> Any:
            """Raise ImportError, which points to ``verbose`` as the alternative."""
            raise ImportError("callbacks need scikit-learn 1.9; or pass a function as `verbose`.")


__all__ = ["CallbackSupportMixin", "watched", "with_callbacks"]


def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a fit such that callbacks are torn down after it.

    scikit-learn does so outside of the method.  An error there, too, leaves the model as it was.
    """
    inner = torn_down(method)

    @wraps(method)
    def fit(model: Any, *args: Any, **options: Any) -> Any:
        with lock_of(model), unchanged_by_errors(model):
            return inner(model, *args, **options)

    return fit


@contextmanager
def watched(
    model: Any, describe: Callable[[Decomposition], dict[str, Any]], speaks: bool, **about: Any
) -> Iterator[Callable[[list[Record], Find], bool]]:
    """Context of a fit that notifies its callbacks; yields the listener for its passes.

    Parameters
    ----------
    model : PrimedPCA
    describe : callable
        Returns the fitted attributes for a decomposition of the data.
    speaks : bool
        Whether this process prints; of several ranks, only one does.
    **about
        ``X``, ``y`` and ``metadata``, which are passed to the callbacks.
    """
    context: Any = None
    if {"_skl_callbacks", "_parent_callback_ctx"} & vars(model).keys():
        # The number of passes is not known in advance.
        context = model._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=model, **about)

    verbose = model.verbose  # a callback may set another value, which is for the next fit
    speaker = _speaker(model, verbose) if speaks and verbose else None
    shown: list[Record] = []  # copies: the fit decides by its own rows

    def tell(history: list[Record], find: Find) -> bool:
        if speaker is None and context is None:
            return False
        shown.extend(map(_copied, history[len(shown) :]))
        model.history_ = shown  # callbacks read it from the model
        if speaker is not None:
            speaker(_copied(history[-1]), "")
        if context is None:
            return False
        passed = context.subcontext(task_name="pass")
        passed.call_on_fit_task_begin(estimator=model, **about)

        def reconstruct() -> dict[str, Any] | None:
            """Return the fitted attributes as if the fit had ended with this pass, or None."""
            found = find()
            return None if found is None else describe(found)

        return bool(
            passed.call_on_fit_task_end(
                estimator=model, reconstruction_attributes=reconstruct, **about
            )
        )

    yield tell
    if speaker is not None and not callable(verbose):
        speaker(model.history_[-1] if model.history_ else None, model.certificate_ or model.status_)
    if context is not None:
        fitted = {name: value for name, value in vars(model).items() if name.endswith("_")}
        context.call_on_fit_task_end(estimator=model, reconstruction_attributes=fitted, **about)


def _copied(row: Record) -> Record:
    """Return a copy of a row of the history that shares no array with it."""
    return {
        name: value.copy() if isinstance(value, np.ndarray) else value
        for name, value in row.items()
    }


def _speaker(model: Any, verbose: Any) -> Callable[[Record | None, Any], None]:
    """Return a function that shows a row of the history, and the sentence of a fit that ended."""
    if callable(verbose):
        return lambda row, end: verbose(row)
    if in_notebook():
        place = InPlace()

        def show(row: Record | None, end: Any) -> None:
            seen = {"passes": 0.0, "seconds": 0.0} if row is None else row
            place.show(progress_html(seen, model.tol, str(end)), last=bool(str(end)))

        return show
    return lambda row, end: print(f"primedpca: {end}" if str(end) else line(row or {}, model.tol))
