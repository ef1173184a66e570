"""Models as a stranger might write them: real ones, changed anywhere, under a valid checksum.

Run as a script in a process of its own: ``hostile_models.py FOLDER FIRST LAST``.  It loads the
bodies with these numbers, calls every documented method of those that load, and prints what
happened as JSON.  An audit hook takes down whatever is contacted, started, unpickled, or opened
for writing in another folder than the one for results.
"""

import contextlib
import copy
import io
import json
import math
import os
import signal
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

RNG = np.random.default_rng(7)
X = RNG.normal(size=(40, 6)) * np.geomspace(9, 1, 6) + 5
NAMES = ["height", "width", "a,b", "$x$", "<b>", "ü"]
PER_CALL = 30  # seconds after which a call counts as hanging
MOST_STEPS = 10**4  # of a fit: a model may ask for as many as it likes, and is then not fitted
DRAWN = 16  # every sixteenth model is drawn as well, which takes longest


def values(trap):
    """Whatever might stand where something else should."""
    nested = 1
    for _ in range(300):
        nested = [nested]
    return [
        *(None, True, False, -1, 0, 1, 2, 3, 7, 2**31, 2**62, 2**63, 2**100, 10**4000),
        *(0.5, 1.0, -0.5, 1e-320, 1e-200, 1e200, 1e308, {"@float": "nan"}, {"@float": "inf"}),
        *("", "a", "auto", "mle", "std", "mean", "none", "exact", "oja", "left", "1/t", "2GB"),
        *("\x1b[31mred\x1b]0;title\x07", "\ud800", "A" * 50_000, "a\nb", "\u202egnp.exe"),
        *(f"{trap}/written", f"file://{trap}/w", "tcp://127.0.0.1:9", "http://127.0.0.1:9/x"),
        *("torch_distributed", "cuda:7", "processes", "__class__", "os.system('true')"),
        *("log1p", "log1p)\nimport os", "<lambda>", "probabilistic", "EXACT", "CERTIFIED"),
        *([], [1], [None], [[1, 2], [3]], [1.0] * 6, ["x"] * 6, nested, {}, {"@dict": {}}),
        *({"@dict": {"step": 1}}, {"@tuple": []}, {"@tuple": [1, 2]}, {"@tuple": "ab"}),
        *({"@array": "0000"}, {"@array": "0001"}, {"@array": "nope"}, {"@array": 3}),
        *({"@array": []}, {"@text": ["a"], "shape": [1]}, {"@text": ["a"], "shape": [2**40]}),
        *({"@text": [1] * 6, "shape": [6]}, {"@text": ["a"] * 6, "shape": [-1]}, {"@text": 1}),
        *({"@text": ["\x1b[2J"] * 6, "shape": [6]}, {"@text": ["=1+1"] * 6, "shape": [6]}),
        *({"@text": ["\ud800"] * 6, "shape": [6]}, {"@text": [], "shape": [0, 2**61]}),
        *({"@float": "1"}, {"@float": 3}, {"@float": "0x1"}, {"@what": 1}, {"@type": []}),
        *({"@type": "Status", "member": name} for name in ("EXACT", "STREAMED", "__class__", 3)),
        *({"@type": "PrimedPCA", "fields": {}}, {"@type": "Stream", "member": "x"}),
        {"@type": "Exact", "fields": {}},
        {"@type": "Exact", "fields": {"visits": "rows"}},
        {"@type": "SubspaceIteration", "fields": {}},
        {"@type": "BlockKrylov", "fields": {"block_size": 2**40}},
        {"@type": "BlockKrylov", "fields": {"block_size": "1", "side": []}},
        {"@type": "BlockKrylov", "fields": {"side": "left", "keep_images": True}},
        {"@type": "FrequentDirections", "fields": {"sketch_size": 2**40}},
        {"@type": "FrequentDirections", "fields": {"sketch_size": 1}},
        {"@type": "PowerMethod", "fields": {"epsilon": "x"}},
        {"@type": "PowerMethod", "fields": {"epsilon": 1e-300, "max_steps": 2}},
        {"@type": "Oja", "fields": {"learning_rate": 1e300, "steps": 5}},
        {"@type": "Oja", "fields": {"steps": 2**62}},
        {"@type": "EigenGame", "fields": {"steps": 3, "momentum": None}},
        {"@type": "Given", "fields": {"array": {"@array": "0000"}}},
        {"@type": "Given", "fields": {"array": "os"}},
        {"@type": "Cluster", "fields": {"start": 0, "stop": 2**50, "angle_bound": 0.1}},
        {"@type": "Cluster", "fields": {"start": 0, "stop": 2, "angle_bound": 0.1}},
        {"@type": "Way", "fields": {}},
    ]


def originals():
    """Real models of several kinds: what their files hold."""
    import pandas
    from safetensors import safe_open

    from primedpca import PrimedPCA
    from primedpca.priming import Oja

    frame = pandas.DataFrame(X, columns=NAMES)
    stream = PrimedPCA(2, scale=np.arange(1.0, 7.0))
    models = [
        PrimedPCA(3, priming="block_krylov", random_state=0).fit(frame),
        PrimedPCA(2, scale="std", whiten=True).fit(X.astype(np.float32)),
        stream.partial_fit(X[:30]).partial_fit(X[30:], sample_weight=np.ones(10)),
        PrimedPCA(2, priming=Oja(steps=20), random_state=0, certificate="none").fit(X),
        PrimedPCA(2, priming=np.eye(6)[:, :4], missing="mean").fit(X),
    ]
    found = []
    for model in models:
        model.save("original")
        with safe_open("original", "numpy") as file:
            body = json.loads(file.metadata()["body"])
            found.append((body, {name: file.get_tensor(name) for name in file.keys()}))  # noqa: SIM118
        os.remove("original")
    return found


def write(path, body, tensors):
    """A file with a checksum that is right, whatever it holds."""
    from safetensors.numpy import save_file

    from primedpca._io.tensor_file import _digest

    text = json.dumps(body)
    head = {"primedpca": "model", "format": "1", "body": text}
    save_file(tensors, path, metadata=head | {"sha256": _digest("model", text, tensors)})


def places(value, path=()):
    """All places in a tree of JSON, and the path to each."""
    yield path
    parts = enumerate(value) if isinstance(value, list) else ()
    for key, part in value.items() if isinstance(value, dict) else parts:
        yield from places(part, (*path, key))


def mutant(number, known, hostile):
    """Body and tensors of one number: one of the originals with one or two changes."""
    rng = np.random.default_rng([11, number])
    body, tensors = copy.deepcopy(known[number % len(known)])
    for twice in range(1 + (rng.random() < 0.2)):
        kind = rng.random()
        if kind < 0.25 or (twice and kind < 0.5):
            change_tensor(rng, tensors)
        elif kind < 0.5:  # a parameter, or a fitted attribute as a whole
            part = body["@dict"][("params", "fitted")[int(rng.random() < 0.5)]]["@dict"]
            name = str(rng.choice([*part, "engine", "checkpoint", "device", "max_memory", "fit_"]))
            part[name] = hostile[rng.integers(len(hostile))]
        else:
            body = change_body(rng, body, hostile)
    return body, tensors


def change_body(rng, body, hostile):
    every = list(places(body))
    path = every[rng.integers(len(every))]
    if not path:
        return hostile[rng.integers(len(hostile))]
    holder = body
    for key in path[:-1]:
        holder = holder[key]
    kind, old = rng.random(), holder[path[-1]]
    if isinstance(old, (int, float)) and kind < 0.7:  # another number, of which many are allowed
        factor = [0, -1, 2, 0.5, 1e30, 1e-30, 1e150, 1e-150, 1e300, 1e-300][rng.integers(10)]
        holder[path[-1]] = type(old)(max(-1e308, min(1e308, old * factor)))
    elif kind < 0.15:
        del holder[path[-1]]
    elif kind < 0.3:  # another part of the same tree
        other = body
        for key in every[rng.integers(len(every))]:
            other = other[key]
        holder[path[-1]] = copy.deepcopy(other)
    else:
        holder[path[-1]] = hostile[rng.integers(len(hostile))]
    return body


def change_tensor(rng, tensors):
    name = sorted(tensors)[rng.integers(len(tensors))]
    array = tensors[name].copy()
    kind = rng.integers(8)
    if kind == 0:
        array = np.ascontiguousarray(array.T) if array.ndim > 1 else array[:, None]
    elif kind == 1:
        array = array[:-1] if array.ndim and len(array) else np.zeros((0, 3))
    elif kind == 2:
        array = array.reshape(-1) if array.ndim > 1 else np.repeat(array, 2)
    elif kind == 3:
        types = [np.float32, np.float64, np.int64, np.uint8, np.float16, bool, np.int8]
        array = array.astype(types[rng.integers(len(types))])
    elif kind == 4 and array.size and array.dtype.kind == "f":
        value = [math.nan, math.inf, -math.inf, 1e300, -1.0, 0.0, 1e-310][rng.integers(7)]
        array.reshape(-1)[rng.integers(array.size)] = value
    elif kind == 5 and array.dtype.kind == "f":
        array = array * array.dtype.type([0, -1, 1e30, 1e-30, 1e150][rng.integers(5)])
    elif kind == 6:
        array = np.zeros((0,) * array.ndim, array.dtype)
    else:
        array = np.full_like(array, [0, 1][rng.integers(2)])
    tensors[name] = array


# -- what is done with a model ---------------------------------------------------------------


def uses(path, model, whole, draw):
    """Every documented use: a name, and a function to call."""
    from primedpca import PrimedPCA, certify, load, monitoring, plots
    from primedpca.report import write_report

    def again():
        return load(path)

    def fit():
        again().set_params(warm_start=True).fit(X)

    yield from {
        "transform": lambda: again().transform(X),
        "transform out": lambda: again().transform(X, out=f"results/{os.urandom(6).hex()}.npy"),
        "inverse_transform": lambda: again().inverse_transform(np.ones((2, model.n_components_))),
        "score": lambda: again().score(X),
        "score_samples": lambda: again().score_samples(X),
        "get_covariance": lambda: again().get_covariance(),
        "get_precision": lambda: again().get_precision(),
        "get_feature_names_out": lambda: again().get_feature_names_out(),
        "set_output": lambda: again().set_output(transform="pandas").transform(X),
        "partial_fit": lambda: again().partial_fit(X).components_,
        "merge": lambda: again().merge(PrimedPCA(2).partial_fit(X)).components_,
        "merged": lambda: PrimedPCA(2).partial_fit(X).merge(again()).components_,
        "save": lambda: again().save("results/again", overwrite=True),
        "to_sklearn": lambda: again().to_sklearn().transform(X),
        "repr": lambda: repr(again()),
        "str": lambda: [str(v) for v in (model.certificate_, model.status_, model.plan_)],
        "met": lambda: model.certificate_ and model.certificate_.met(model.tol),
        "streak": lambda: model.certificate_ and model.certificate_.streak(model.tol),
        "certify": lambda: certify(X, model.components_),
        "transform csv": lambda: again().transform(X, out=f"results/{os.urandom(6).hex()}.csv"),
        "loadings": lambda: again().loadings(scaled=True),
        "varimax": lambda: again().loadings(rotation="varimax"),
        "promax": lambda: again().loadings(rotation="promax"),
        "contributions": lambda: again().contributions(),
        "contributions of rows": lambda: again().contributions(X),
        "loadings MODEL": lambda: command("loadings", path),
        "outliers": lambda: monitoring.outliers(again(), X),
        "limits": lambda: monitoring.limits(again()),
        "statistics": lambda: monitoring.statistics(again(), X),
        "inspect": lambda: command("inspect", path),
        "inspect --json": lambda: command("inspect", path, "--json"),
    }.items()
    if whole:
        yield "fit", fit
        yield "fit_transform", lambda: again().fit_transform(X)
    if draw:
        for name in plots.__all__:
            if name in (
                "scree",
                "certificate",
                "convergence",
                "contributions",
                "loadings",
                "plans",
            ):
                yield name, lambda name=name: drawn(getattr(plots, name)(again()))
        yield "scores", lambda: drawn(plots.scores(again().transform(X), model=again()))
        yield "biplot", lambda: drawn(plots.biplot(again(), again().transform(X)))
        yield "monitor", lambda: drawn(plots.monitor(again(), X))
        yield "outliers plot", lambda: drawn(plots.outliers(again(), X))
        yield "correlation_circle", lambda: drawn(plots.correlation_circle(again(), X))
        yield "report", lambda: write_report(again(), "results/page.html", data=X, model_path=path)


def drawn(axes):
    """A plot drawn to the last point, and closed."""
    from matplotlib import pyplot

    figure = np.ravel(axes)[0].figure
    figure.savefig(io.BytesIO(), format="svg")
    pyplot.close(figure)


def command(*words):
    """A command in this process; what it prints must be harmless."""
    from primedpca.cli import app
    from primedpca.cli.errors import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(app, [str(word) for word in words])
    text = out.getvalue() + err.getvalue()
    text.encode()
    strange = [c for c in text if c != "\n" and not c.isprintable()]
    if strange or code not in (0, 1) or "error of primedpca itself" in text:
        raise AssertionError(f"{words[0]} ended with {code}, {strange[:3]}: {text[-300:]!r}")


def is_ours(error):
    """Whether an error is one that we, or scikit-learn's checks of arguments, raise by name."""
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    file = last.tb_frame.f_code.co_filename
    ours = f"{os.sep}primedpca{os.sep}" in file or f"{os.sep}sklearn{os.sep}" in file
    plain = type(error) in (ValueError, TypeError) or type(error).__module__.startswith("primedpca")
    return ours and plain and len(str(error)) > 10


class Watch:
    """An audit hook; cannot be taken out again, so that it is only set in a process of its own."""

    CALLS = (
        *("socket.connect", "socket.getaddrinfo", "socket.bind", "subprocess.Popen", "os.system"),
        *("os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pickle.find_class", "os.startfile"),
        *("ctypes.dlopen", "urllib.Request", "webbrowser.open", "shutil.rmtree"),
    )
    PATHS = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.chmod")

    def __init__(self, folder):
        self.allowed, self.seen = os.path.realpath(folder) + os.sep, []
        sys.addaudithook(self)

    def __call__(self, event, args):
        if event in self.CALLS:
            self.seen.append((event, repr(args)[:200]))
        elif event == "open":
            path, mode, flags = args
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
            if writes and not self._inside(path):
                self.seen.append((event, f"{path!r} {mode} {flags}"))
        elif event in self.PATHS and not self._inside(args[0]):
            self.seen.append((event, repr(args)[:200]))

    def _inside(self, path):
        return not isinstance(path, int) and os.path.realpath(path).startswith(self.allowed)


def too_long(signum, frame):
    raise AssertionError(f"took longer than {PER_CALL} s")


def examine(path, number, draw, watch):
    """What goes wrong with one file, and whether it loads."""
    from primedpca import load

    wrong, called = [], 0

    def tried(name, call):
        nonlocal called
        before = len(watch.seen)
        signal.alarm(PER_CALL)
        try:
            called += 1
            return call()
        except Exception as error:
            if not is_ours(error):
                wrong.append((number, name, type(error).__name__, str(error)[:300]))
        finally:
            signal.alarm(0)
            if len(watch.seen) > before:
                wrong.append((number, name, "did", watch.seen[before:]))
        return None

    model = tried("load", lambda: load(path))
    if model is None:
        tried("inspect", lambda: command("inspect", path))
        return wrong, False, called
    asked = model.get_params()
    if any(asked[name] is not None for name in ("engine", "checkpoint", "device", "max_memory")):
        wrong.append((number, "load", "kept a place", ""))
    steps = max(getattr(model.priming, "steps", 0), asked["max_passes"])
    for name, call in uses(path, model, steps <= MOST_STEPS, draw):
        tried(name, call)
    return wrong, True, called


def main(folder, first, last):
    """Go through the bodies with these numbers."""
    os.chdir(folder)
    for name in ("results", "trap"):
        Path(name).mkdir()
    os.environ["MPLCONFIGDIR"] = os.path.realpath("results")
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, too_long)
    known = originals()
    watch = Watch("results")
    wrong, loaded, calls = [], 0, 0
    for number, (body, tensors) in enumerate(known):  # as they are: libraries are loaded now
        write("results/model", body, tensors)
        found, whole, _ = examine("results/model", f"original {number}", number == 0, watch)
        wrong += [entry for entry in found if entry[2] != "did"]
        assert whole
    hostile = values(os.path.realpath("trap"))
    for number in range(first, last):
        body, tensors = mutant(number, known, hostile)
        write("results/model", body, tensors)
        found, whole, called = examine("results/model", number, number % DRAWN == 0, watch)
        wrong, loaded, calls = wrong + found, loaded + whole, calls + called
    wrong += [("trap", name) for name in os.listdir("trap")]
    kinds = Counter(entry[2] for entry in wrong if len(entry) > 2)
    print(json.dumps({"loaded": loaded, "calls": calls, "kinds": kinds, "wrong": wrong}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
