"""Invalid command lines: one helpful sentence, the right exit code, valid JSON."""

import json

import numpy as np
import pytest
from command import primedpca, primedpca_process

from primedpca import PrimedPCA


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data and models, good and bad."""
    folder = tmp_path_factory.mktemp("bad lines")
    x = np.random.default_rng(0).normal(size=(60, 8)) * np.arange(8, 0, -1)
    np.save(folder / "x.npy", x)
    np.save(folder / "wide.npy", np.ones((5, 9)))
    np.save(folder / "row.npy", x[0])
    np.save(folder / "column.npy", x[:, :1])
    np.save(folder / "constant.npy", np.ones((30, 4)))
    np.save(folder / "objects.npy", np.array([{}], dtype=object))
    np.save(folder / "oblique.npy", np.ones((2, 8)))
    x[3, 4] = np.nan
    np.save(folder / "nan.npy", x)
    (folder / "cut.npy").write_bytes((folder / "x.npy").read_bytes()[:-9])
    (folder / "junk.npy").write_bytes(b"hello")
    (folder / "words.xyz").write_text("hello")
    (folder / "empty.csv").write_text("")
    (folder / "table.csv").write_text("plant,a,b,kind\np1,1,2,u\np2,3,1,v\np3,2,2,u\n")
    (folder / "semicolons.csv").write_text("a;b\n1;2\n3;1\n2;2\n")
    (folder / "ragged.csv").write_text("a,b\n1,2\n3\n")
    (folder / "decimal.csv").write_text("a;b\n1,5;2,5\n3,5;1,5\n")
    (folder / "marks.csv").write_text("a,b\n1,2\nNA,3\n?,4\n2,5\n")
    (folder / "holes.csv").write_text('id,"a, b",c\n1,2,3\n2,,4\n3,5,9\n')
    (folder / "latin.csv").write_bytes("größe,b\n1,2\n3,4\n".encode("latin-1"))
    (folder / "x.raw").write_bytes(x.tobytes())
    (folder / "nothing").mkdir()
    model = PrimedPCA(2, random_state=0).fit(np.load(folder / "x.npy"))
    model.save(folder / "model.safetensors")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "damaged.safetensors").write_bytes(whole[:-5] + b"\0\1\2\3\4")
    (folder / "cut.safetensors").write_bytes(whole[:200])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("primedpca._io.tensor_file.FORMAT", 2)
        model.save(folder / "newer.safetensors")
    return folder


FIT = ("fit", "x.npy", "-k", "2")
#: Arguments, exit code, and a part of the expected message.
LINES = [
    # -- usage errors
    (("dance",), 2, "No such command 'dance'"),
    (("fitt", "x.npy"), 2, "Did you mean 'fit'?"),
    (("fit",), 2, "'DATA'"),
    (("fit", "x.npy"), 2, "'-k'"),
    (("fit", "x.npy", "-k", "ten"), 2, "number of components: 'ten'"),
    (("fit", "x.npy", "wide.npy", "-k", "2"), 2, "quotes"),
    ((*FIT, "--loud"), 2, "--loud"),
    ((*FIT, "--tol", "narrow"), 2, "angle: 'narrow'. Write pi/1024"),
    ((*FIT, "--tol", "pi/0"), 2, "angle: 'pi/0'"),
    ((*FIT, "--tol", "-1deg"), 2, "angle: '-1deg'"),
    ((*FIT, "--tol"), 2, "requires an argument"),
    ((*FIT, "--max-memory", "lots"), 2, "size: 'lots'. Write 500MB"),
    ((*FIT, "--max-memory", "-2GB"), 2, "size: '-2GB'"),
    ((*FIT, "--priming", "magic"), 2, "priming: 'magic'. Use one of auto, exact"),
    ((*FIT, "--map", "tan"), 2, "map: 'tan'. Use one of log1p"),
    ((*FIT, "--scale", "large"), 2, "scale: 'large'"),
    ((*FIT, "--missing", "drop"), 2, "Use one of error, mean"),
    ((*FIT, "--seed", "x"), 2, "'--seed': 'x' is not an integer of at least 0"),
    ((*FIT, "--seed", "-1"), 2, "'--seed': '-1' is not an integer of at least 0"),
    ((*FIT, "--max-passes", "many"), 2, "'--max-passes': 'many' is not an integer"),
    (("fit", "x.npy", "-k"), 2, "requires an argument; see primedpca fit --help"),
    (
        ("fit", "semicolons.csv", "-k", "1", "--delimiter", "ab"),
        2,
        "'ab' is not a single character",
    ),
    (("plan", "x.npy"), 2, "number of components: 10, a fraction"),
    (("inspect", "model.safetensors", "x.npy"), 2, "extra argument(s) (x.npy); see"),
    ((*FIT, "--columns", "a,,b"), 2, "Empty name in 'a,,b'"),
    (("transform", "x.npy", "model.safetensors"), 2, "'-o'"),
    (("transform", "x.npy"), 2, "'MODEL'"),
    (("certify", "x.npy"), 2, "'COMPONENTS'"),
    (("report", "model.safetensors", "x.npy"), 2, "'-o'"),
    (("plan", "x.npy", "-k", "2", "--tol", "pi*2"), 2, "angle: 'pi*2'"),
    # -- data that are not there, or no data
    (("fit", "none.npy", "-k", "2"), 1, "'none.npy'"),
    (("fit", "words.xyz", "-k", "2"), 1, "words.xyz"),
    (("fit", "nothing", "-k", "2"), 1, "nothing is a folder"),
    (("fit", "junk.npy", "-k", "2"), 1, "junk.npy is damaged"),
    (("fit", "cut.npy", "-k", "2"), 1, "cut.npy"),
    (("fit", "row.npy", "-k", "2"), 1, "two dimensions"),
    (("fit", "objects.npy", "-k", "2"), 1, "Python objects"),
    (("fit", "empty.csv", "-k", "2"), 1, "empty.csv is empty"),
    (("fit", "ragged.csv", "-k", "1"), 1, "ragged.csv"),
    (("fit", "semicolons.csv", "-k", "1"), 1, "pass `--delimiter ';'`"),
    (("fit", "table.csv", "-k", "1"), 1, "`--id`, `--label` or `--columns`"),
    (("fit", "decimal.csv", "-k", "1"), 1, "no ',' in line 1"),
    (
        ("fit", "decimal.csv", "-k", "1", "--delimiter", ";"),
        1,
        "'a' ('1,5' in row 1: pass `--decimal ,`)",
    ),
    (("fit", "marks.csv", "-k", "1"), 1, "'a' ('?' in row 3: pass `--na-values '?'`)"),
    (("fit", "holes.csv", "-k", "1"), 1, "DATA contain NaN: 1 non-finite value(s), "),
    (("fit", "holes.csv", "-k", "1", "--exclude", "id"), 1, "row 1, column 0 ('a, b') (rows"),
    (
        ("fit", "holes.csv", "-k", "1", "--columns", "c", "--exclude", "c"),
        1,
        "`--columns` and in `--exclude`",
    ),
    ((*FIT, "--map", "sqrt", "--missing", "mean"), 1, "which is below 0; choose another map"),
    (("fit", "latin.csv", "-k", "1"), 1, "byte 0xf6, which is not UTF-8; pass `--encoding cp1252`"),
    (("fit", "*.csv", "-k", "1"), 1, "is a pattern, which is for images only"),
    (("fit", "https://example.org/x.npy", "-k", "1"), 1, "is an address; download it first"),
    (("fit", "x.raw", "-k", "1", "--shape", "60,8", "--dtype", "f4"), 1, "end at byte 1920"),
    (("fit", "table.csv", "-k", "1", "--id", "name"), 1, "no column 'name'; it has 'plant'"),
    (("fit", "table.csv", "-k", "1", "--columns", "a,z"), 1, "no column 'z'"),
    (("fit", "x.npy", "-k", "2", "--columns", "a"), 1, "`--columns` for x.npy"),
    (("fit", "x.npy::part", "-k", "2"), 1, "has no parts"),
    (
        ("fit", "nan.npy", "-k", "2"),
        1,
        "row 3, column 4 (rows and columns counted from 0). Use `--missing mean`",
    ),
    # -- invalid requests
    (("plan", "x.npy", "-k", "0"), 1, "`-k`=0 must lie between 1 and"),
    (("plan", "x.npy", "-k", "-3"), 1, "`-k`=-3"),
    (("plan", "x.npy", "-k", "9"), 1, "n_features)=8. Use at most the number of features."),
    (("plan", "x.npy", "-k", "1.5"), 1, "a fraction of the variance between 0 and 1, or mle"),
    (("fit", "x.npy", "-k", "9"), 1, "n_features)=8. Use at most the number of features."),
    (("plan", "x.npy", "-k", "2", "--tol", "pi"), 1, "`--tol`=3.14"),
    (("plan", "x.npy", "-k", "2", "--tol", "0"), 1, "above 0 and below pi/2"),
    (("plan", "x.npy", "-k", "2", "--max-memory", "1KB"), 1, "`--max-memory`=1 kB is less"),
    ((*FIT, "--max-passes", "0"), 1, "`--max-passes`=0"),
    ((*FIT, "--device", "warp"), 1, "`--device`='warp'"),
    ((*FIT, "--checkpoint", "x.npy"), 1, "`--checkpoint`='x.npy' is a file"),
    (("bench", "x.npy", "-k", "8"), 1, "`-k`=8 must be less than"),
    (("bench", "column.npy", "-k", "1"), 1, "DATA is 60 x 1; ARPACK needs at least 2 rows and 2"),
    (("bench", "constant.npy", "-k", "1"), 1, "All columns of DATA are constant."),
    (("bench", "nan.npy", "-k", "2"), 1, "column 4 (rows and columns counted from 0). Drop or re"),
    (("certify", "x.npy", "wide.npy"), 1, "COMPONENTS have shape (5, 9), but DATA has 8"),
    (("certify", "x.npy", "oblique.npy"), 1, "orthonormal"),
    (("certify", "x.npy", "words.xyz"), 1, "COMPONENTS='words.xyz' has an unsupported suffix"),
    ((*FIT, "--checkpoint", "x.npy/kept"), 1, "x.npy/kept' cannot be created: Not a directory"),
    # -- outputs that cannot or must not be written
    ((*FIT, "-o", "no/folder/model.safetensors"), 1, "folder not found"),
    ((*FIT, "-o", "nothing"), 1, "is a folder. Name a file"),
    ((*FIT, "-o", "x.npy"), 1, "is an input. Name another file"),
    ((*FIT, "-o", "x.npy", "--force"), 1, "is an input. Name another file"),
    ((*FIT, "-o", "model.safetensors"), 1, "already exists. Name another file, or add `--force`"),
    ((*FIT, "--report", "no/folder/page.html"), 1, "`--report` no/folder/page.html"),
    ((*FIT, "--report", "/proc/page.html"), 1, "`--report` /proc/page.html cannot be written"),
    ((*FIT, "--report", "x.npy", "--force"), 1, "is an input"),
    ((*FIT, "--report", "page.pdf"), 1, "must end in .html. Name it page.html"),
    ((*FIT, "-o", "scores.csv"), 1, "must end in .safetensors"),
    (("transform", "x.npy", "model.safetensors", "-o", "s.xlsx"), 1, "Use one of .npy, .csv"),
    (("transform", "x.npy", "model.safetensors", "-o", "nan.npy"), 1, "already exists"),
    (("transform", "x.npy", "model.safetensors", "-o", "s.npy", "--id", "a"), 1, "numbers only"),
    # -- models
    (("fit", "model.safetensors", "-k", "2"), 1, "is a model, not data. MODEL comes after DATA"),
    (("transform", "model.safetensors", "x.npy", "-o", "s.npy"), 1, "x.npy is not a model"),
    (("certify", "model.safetensors", "x.npy"), 1, "'model.safetensors' is a model, not data"),
    (("inspect", "none.safetensors"), 1, "none.safetensors"),
    (("inspect", "x.npy"), 1, "x.npy is not a model"),
    (("inspect", "damaged.safetensors"), 1, "is damaged"),
    (("inspect", "cut.safetensors"), 1, "is damaged"),
    (("inspect", "newer.safetensors"), 1, "has format 2"),
    (("transform", "wide.npy", "model.safetensors", "-o", "s.npy"), 1, "9 columns, but the model"),
    (("report", "x.npy", "model.safetensors", "-o", "page.html"), 1, "x.npy is not a model"),
    # -- other commands
    (("datasets", "--download", "nope", "--data-dir", "."), 1, "`--download`='nope' is not a data"),
    (("choose", "x.npy", "--max-components", "99"), 1, "`--max-components`=99 exceeds"),
    (("choose", "x.npy", "--variance-ratio", "1"), 1, "`--variance-ratio`=1.0 must be"),
    (("fit", "marks.csv", "-k", "1", "--skip-rows", "99"), 1, "left to read with `--skip-rows 99`"),
    (("datasets", "--data-dir", "no/folder"), 1, "no/folder"),
    (("reproduce", "table-9"), 1, "'table-9'"),
]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    LINES,
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_a_bad_line_is_one_helpful_sentence(words, code, said, folder):
    before = sorted(path.name for path in folder.iterdir())
    done = primedpca(words[0], "--json", *words[1:], cwd=folder, PRIMEDPCA_DATA="")
    assert done.returncode == code
    assert done.stderr.startswith("primedpca: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert said in done.stderr
    found = json.loads(done.stdout)
    assert found == {"error": done.stderr.removeprefix("primedpca: ").strip(), "exit_code": code}
    assert sorted(path.name for path in folder.iterdir()) == before


def test_debug_shows_where_an_error_came_up(folder):
    done = primedpca_process("inspect", "newer.safetensors", "--debug", cwd=folder)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("primedpca: ")
    assert done.stdout == ""
