"""Suites: the grid they stand for, and one sentence for whatever is wrong in a file."""

from pathlib import Path

import pytest

from ctxbench import registry
from ctxbench.base.errors import UsageError
from ctxbench.model import hparams as settings
from ctxbench.model import read_suite as suite
from ctxbench.model import suite_file as file
from ctxbench.model.case import Measure
from ctxbench.model.conditions import CONDITIONS, parse_shape
from ctxbench.model.grid import Suite
from ctxbench.model.read_suite import Overrides

HEAD = 'title = "t"\nmodules = ["ham_nmf", "sa"]\n'
AXES = "[axes]\nshape = [1, 8, 4, 4]\n"
GOOD = HEAD + AXES


def load(folder: Path, text: str, overrides: Overrides | None = None) -> Suite:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return suite.load(str(path), overrides)


def test_table3_is_the_papers() -> None:
    loaded = suite.load("table3")
    assert loaded.file.axes.shape == [(1, 512, 128, 128)]
    assert loaded.file.published is not None
    assert list(loaded.file.published.rows) == ["sa", "da", "a2", "apc", "dm", "acf", "ham_cd", "ham_nmf"]
    assert loaded.file.published.rows["sa"].printed["memory_train_2020"] == "5253"
    assert [case.module for case in loaded.cases()][8:] == ["linear", "focused_linear", "ham_vq"]


def test_the_grid_is_the_product_of_the_lists(tmp_path: Path) -> None:
    text = HEAD + (
        "[axes]\nshape = [[1, 8, 4, 4], [2, 8, 4, 6]]\ndtype = ['float32', 'bfloat16']\nthreads = [1, 2]\n"
        "[hparams.ham_nmf]\nsteps = [1, 2, 3]\nrank = 4\n"
    )
    cases = load(tmp_path, text).cases()
    assert len(cases) == (3 + 1) * 2 * 2 * 2
    assert len({case.id for case in cases}) == len(cases)
    assert cases[0].id == "ham_nmf(rank=4,steps=1) 1x8x4x4 float32 cpu 1threads"


def test_batch_channels_and_size_are_axes(tmp_path: Path) -> None:
    cases = load(tmp_path, HEAD + "[axes]\nshape = [1, 8, 4, 6]\nbatch = [1, 2]\nsize = [4, 8]\n").cases()
    assert [case.shape for case in cases[:4]] == [(1, 8, 4, 4), (1, 8, 8, 8), (2, 8, 4, 4), (2, 8, 8, 8)]


def test_other_words_for_a_dtype_are_understood(tmp_path: Path) -> None:
    text = HEAD + (
        "[axes]\nshape = [1, 8, 4, 4]\ndtype = ['fp32', 'half', 'amp', 'bf16']\n"
        "[[exclude]]\ndtype = 'fp16'\n[[cases]]\nmodule = 'sa'\ndtype = 'double'\n"
    )
    dtypes = [case.dtype for case in load(tmp_path, text).cases() if case.module == "sa"]
    assert dtypes == ["float32", "autocast-float16", "bfloat16", "float64"]
    assert [CONDITIONS["dtype"].checked(word) for word in ("fp16", "float16", "amp")] == [
        "float16", "float16", "autocast-float16",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="'fp8'"):
        CONDITIONS["dtype"].checked("fp8")


def test_exclude_and_extra_cases(tmp_path: Path) -> None:
    text = HEAD + (
        "[axes]\nshape = [1, 8, 4, 4]\ndtype = ['float32', 'bfloat16']\n"
        "[[exclude]]\nmodule = 'sa'\ndtype = 'bfloat16'\n"
        "[[cases]]\nmodule = 'sa'\nshape = [1, 16, 4, 4]\nd = 4\n"
    )
    cases = load(tmp_path, text).cases()
    assert [(c.module, c.dtype, c.shape[1]) for c in cases] == [
        ("ham_nmf", "float32", 8),
        ("ham_nmf", "bfloat16", 8),
        ("sa", "float32", 8),
        ("sa", "float32", 16),
    ]
    assert cases[-1].hparams == {"d": 4}


def test_a_case_of_its_own_may_be_in_a_network_beside_which_stands_the_network_alone(tmp_path: Path) -> None:
    conditions = "network = 'resnet18_os32'\nshape = [1, 3, 64, 64]\nmemory_format = 'channels_last'\n"
    text = GOOD + f"[[cases]]\nmodule = 'sa'\n{conditions}[[exclude]]\nnetwork = 'resnet50_d8'\n"
    cases = load(tmp_path, text).cases()
    assert [(case.module, case.network, case.memory_format) for case in cases] == [
        ("ham_nmf", "", "contiguous"),
        ("sa", "", "contiguous"),
        ("identity", "resnet18_os32", "channels_last"),
        ("sa", "resnet18_os32", "channels_last"),
    ]


def test_a_rule_about_a_module_that_the_caller_left_out_is_left_out_with_it(tmp_path: Path) -> None:
    text = HEAD.replace("sa", "gone.py:Gone") + AXES + "[[exclude]]\nmodule = 'Gone'\nkernel = 3\n"
    loaded = load(tmp_path, text, Overrides(modules=["ham_nmf"]))
    assert [case.module for case in loaded.cases()] == ["ham_nmf"]
    again = suite.restore("mine", tmp_path / "run.json", loaded.file.model_dump(mode="json"))
    assert again.cases() == loaded.cases()


@pytest.mark.parametrize("name", ["mine.py:Mine", "Mine", "./mine.py:Mine"])
def test_settings_and_exclusions_name_a_class_as_the_suite_or_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nclass Mine(nn.Conv2d):\n"
        "    def __init__(self, channels: int, kernel: int = 1) -> None:\n"
        "        super().__init__(channels, channels, kernel)\n"
    )
    text = (
        "title = 't'\nmodules = ['mine.py:Mine', 'sa']\n[axes]\nshape = [[1, 8, 4, 4], [1, 16, 4, 4]]\n"
        f"[hparams.'{name}']\nkernel = [1, 3]\n[[exclude]]\nmodule = '{name}'\nchannels = 16\n"
    )
    cases = load(tmp_path, text).cases()
    assert [(c.module, c.shape[1], dict(c.hparams)) for c in cases] == [
        ("Mine", 8, {"kernel": 1}),
        ("Mine", 8, {"kernel": 3}),
        ("sa", 8, {}),
        ("sa", 16, {}),
    ]
    (tmp_path / "mine.toml").write_text(text)
    chosen = suite.load(str(tmp_path / "mine.toml"), Overrides(modules=["mine.py:Mine"], hparams={"": {"kernel": 5}}))
    assert [dict(case.hparams) for case in chosen.cases()] == [{"kernel": 5}]


def test_a_star_stands_for_the_registry(tmp_path: Path) -> None:
    cases = load(tmp_path, 'title = "t"\nmodules = ["*"]\n[axes]\nshape = [1, 8, 4, 4]\n').cases()
    assert {"sa", "ham_vq"} <= {case.module for case in cases}


def test_overrides_replace_the_suites_values() -> None:
    overrides = Overrides(
        modules=["sa"],
        conditions={"shape": [(2, 16, 4, 4)], "dtype": ["bfloat16"]},
        hparams={"sa": {"d": 8}},
        measure={"sample_s": 1},
    )
    loaded = suite.load("table3", overrides)
    (case,) = loaded.cases()
    assert case.id == "sa(d=8) 2x16x4x4 bfloat16 cpu"
    assert loaded.file.measure.sample_s == 1
    assert loaded.file.measure.target == 0.02


def test_a_stored_definition_gives_the_same_cases() -> None:
    loaded = suite.load("table3", Overrides(hparams={"ham_nmf": {"steps": [3, 6]}}))
    again = suite.restore("table3", Path("run.json"), loaded.file.model_dump(mode="json"))
    assert again.cases() == loaded.cases()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("title = ", "is not TOML"),
        ('modules = ["sa"]\n' + AXES, "the key 'title' is missing"),
        (HEAD + "[axes]\nshape = [1, 2, 3]\n", "has 3 numbers; it takes four"),
        (HEAD + "[axes]\nshape = [1, 2, 3, 0]\n", "each of B,C,H,W is at least 1"),
        (HEAD + "[axes]\nshape = 'big'\n", "is not four integers"),
        (GOOD + "shap = 3\n", "unknown key 'shap'; did you mean 'shape'?"),
        (GOOD + "dtype = 'fp8'\n", "'axes.dtype.0' is 'fp8': input should be 'float32'"),
        (HEAD + 'metrics = ["latenc"]\n' + AXES, "'latenc': unknown metric 'latenc'; did you mean 'latency'?"),
        (HEAD.replace('"t"', "3") + AXES, "'title' is 3: input should be a valid string"),
        (GOOD + "[measure]\nsample_s = 'long'\n", "'measure.sample_s' is 'long'"),
        (GOOD + "[measure]\ntarget = 2\n", "'measure.target' is 2"),
        ('title = "t"\nmodules = []\n' + AXES, "'modules' is []"),
        (GOOD + "[published.rows]\nsa = { printed = { macs = '1' } }\n", "the key 'published.title' is missing"),
        ("metrics = []\n" + GOOD, "'metrics' is []"),
        (HEAD.replace("sa", "saa") + AXES, "unknown module 'saa'; did you mean 'sa'?"),
        (GOOD + "[hparams.sa]\nwidth = 3\n", "unknown hyper-parameter of 'sa' 'width'"),
        (GOOD + "[[exclude]]\ndtype = 'float32'\n", "has no case left"),
        (GOOD + "[[exclude]]\nmemoryformat = ''\n", "'exclude.0': unknown key 'memoryformat'; did you mean"),
        (GOOD + "[[exclude]]\nmodule = 'saa'\n", "key 'exclude.0': unknown module 'saa'; did you mean 'sa'?"),
        (GOOD + "[gate.margins]\n'saa train' = 0.1\n", "[gate] margins: unknown module 'saa train'"),
        *(
            (GOOD + f"[hparams]\nreduction = {value}\n", "settings stand below the name of their module, such as")
            for value in ("2", "[2, 4]", "'x'", "true")
        ),
        (HEAD + "[axes]\nshape = [1.5, 8, 4, 4]\n", "shape [1.5, 8, 4, 4] is not four integers"),
        (HEAD + "[axes]\nshape = [true, 8, 4, 4]\n", "shape [True, 8, 4, 4] is not four integers"),
        (HEAD + "[axes]\nshape = [1, 1048576, 1048576, 2]\n", "the product of B,C,H,W is too large; it must be from 1"),
        (GOOD + "channels = 99999999999999999999\n", "'axes.channels.0' is 99999999999999999999: it must be from"),
        (
            GOOD + "threads = [1, 1025]\n",
            "'axes.threads.1' is 1025: it must be from 1 to 1,024: every one takes a thread",
        ),
        (GOOD + "device = 'cuda:²'\n", "unknown device 'cuda:²'"),
        (GOOD + "[[cases]]\nmodule = 'sa'\nthreads = 1025\n", "'cases.0': threads 1025: it must be from 1 to 1,024"),
        (GOOD + "[[cases]]\nmodule = 'sa'\ndtype = 'fp8'\n", "'cases.0': dtype 'fp8': Input should be"),
        (
            GOOD + "[[cases]]\nmodule = 'sa'\nnetwork = 'resnet18'\n",
            "'cases.0': network 'resnet18': unknown network 'resnet18'; did you mean 'resnet18_os32'? (known: ",
        ),
        (GOOD + "network = 'resnet18'\n", "'axes.network.0' is 'resnet18': unknown network 'resnet18'"),
        (
            GOOD + "[[exclude]]\nmodule = 'sa'\n[[exclude]]\nmemory_format = 'channel_last'\n",
            "'exclude.1': memory_format 'channel_last': Input should be 'contiguous' or 'channels_last'",
        ),
        (
            GOOD + "[[exclude]]\nexecution = 'compiled'\n",
            "'exclude.0': execution 'compiled': unknown execution 'compiled'; did you mean 'compile'?",
        ),
        (GOOD + "[[cases]]\nmodule = 'sa'\nshape = [1.5, 8, 4, 4]\n", "[1.5, 8, 4, 4] is not four integers"),
        (GOOD + "[measure]\nprocesses = 1001\n", "'measure.processes' is 1001: it must be from 1 to 1,000"),
        (GOOD + "[measure]\npasses = 1000001\n", "'measure.passes' is 1000001: it must be from 1 to 1,000,000"),
        (GOOD + "[measure]\nsample_s = inf\n", "'measure.sample_s' is inf: it must be more than 0 and at most 604,8"),
        (GOOD + "[measure]\nsample_s = true\n", "'measure.sample_s' is True: input should be a valid number"),
        (GOOD + "[measure]\nwarmup_s = 1e308\n", "'measure.warmup_s' is 1e+308: it must be from 0 to 604,800"),
        (GOOD + "[measure]\nmemory_limit_gib = inf\n", "'measure.memory_limit_gib' is inf"),
        (GOOD + "[measure]\nseed = 9223372036854775808\n", "it must be a 64-bit integer"),
        (GOOD + "[gate]\nmargin = inf\n", "'gate.margin' is inf: it must be more than 0 and less than 10"),
        (GOOD + "x = " + "[" * 5000, "is nested more than 64 levels deep"),
        (GOOD + "x = " + "[" * 65 + "]" * 65, "is nested more than 64 levels deep"),
        (GOOD + "x = " + "9" * 5000, "is not TOML: Exceeds the limit"),
        (
            GOOD + f"batch = {list(range(1, 1001))}\nthreads = {list(range(1, 501))}\n",
            "the grid has 1,000,000 cases, more than 10,000; shorten the lists",
        ),
    ],
)
def test_a_malformed_suite_gets_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text).cases()
    assert "mine.toml" in str(caught.value) or sentence.startswith(("unknown module", "unknown hyper"))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_suite_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'table3'"):
        suite.load("tabel3")
    with pytest.raises(UsageError, match=r"there is no file .*none\.toml"):
        suite.load("none.toml")


def test_a_suite_names_a_published_table_or_a_file_beside_it(tmp_path: Path) -> None:
    named = load(tmp_path, 'published = "hamburger"\n' + GOOD).file.published
    (tmp_path / "paper.toml").write_text((Path(__file__).parents[1] / "published" / "hamburger.toml").read_text())
    assert load(tmp_path, 'published = "paper.toml"\n' + GOOD).file.published == named
    with pytest.raises(UsageError, match="unknown published table 'hamburgr'; did you mean 'hamburger'"):
        load(tmp_path, 'published = "hamburgr"\n' + GOOD)
    with pytest.raises(UsageError, match=r"there is no file .*none\.toml"):
        load(tmp_path, 'published = "none.toml"\n' + GOOD)


def test_the_largest_numbers_are_taken(tmp_path: Path) -> None:
    text = GOOD + f"threads = {[1024] * 5000}\n"
    text += "[measure]\nprocesses = 1000\nsample_s = 604800\nwarmup_s = 0\ntarget = 0.5\nseed = -9223372036854775808\n"
    loaded = load(tmp_path, text)
    assert len(loaded.cases()) == 2
    assert parse_shape("1,1024,32768,32768") == (1, 1024, 2**15, 2**15)


@pytest.mark.parametrize(
    "text", ["1,512,128", "1,512,128,0", "-1,2,3,4", "a,b,c,d", "", "1,2,3,4,5", "1.5,2,3,4", "१,2,3,4", "1_0,2,3,4"]
)
def test_a_wrong_shape_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="shape"):
        parse_shape(text)


def test_settings_are_toml_values_or_words() -> None:
    assert settings.parse(["ham_nmf.steps=3", "ham_nmf.rank=8"]) == {"ham_nmf": {"steps": 3, "rank": 8}}
    assert settings.parse(["ham_cd.init=fixed"]) == {"ham_cd": {"init": "fixed"}}
    assert settings.parse(["ham_cd.beta=[0.1, 0.2]"]) == {"ham_cd": {"beta": [0.1, 0.2]}}
    assert settings.parse(["rank=8,16,64", "mode=dot,0.5"]) == {"": {"rank": [8, 16, 64], "mode": ["dot", 0.5]}}
    assert settings.parse(["my.py:Mine.k=1", "t=0.5"]) == {"my.py:Mine": {"k": 1}, "": {"t": 0.5}}
    for wrong in ("steps", "ham_nmf.steps", "=3", "ham_nmf.=3", ".steps=3"):
        with pytest.raises(UsageError, match=r"\[module\.\]hyperparameter=value"):
            settings.parse([wrong])


def test_the_word_channels_is_the_number_of_channels_but_for_texts(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from torch import nn\n\n\nclass Mine(nn.Module):\n"
        "    def __init__(self, channels, oup: int = 4, axis: str = 'rows', free=2):\n"
        "        super().__init__()\n        self.got = (channels, oup, axis, free)\n"
    )
    entry = registry.get(f"{file}:Mine")
    words = {"oup": "channels", "axis": "channels", "free": "channels"}
    assert entry.check_hparams(words) == words
    assert entry.build(32, words).got == (32, 32, "channels", 32)
    with pytest.raises(UsageError, match="'oup' is 'chanels'; it must be int"):
        entry.check_hparams({"oup": "chanels"})


def test_settings_of_one_module_take_its_names_alone() -> None:
    names = "m.py:Mine", "mine", "Mine"
    assert settings.of_one_module(["k=1", "mine.d=2", "m.py:Mine.s=3"], *names) == {"k": 1, "d": 2, "s": 3}
    with pytest.raises(UsageError, match=r"--set sa\.nonsense: this command is about m\.py:Mine, not sa"):
        settings.of_one_module(["sa.nonsense=3"], *names)


def test_settings_that_no_module_takes_are_refused() -> None:
    chosen = suite.load("quick", Overrides(modules=["sa", "ham_nmf"], hparams={"": {"steps": 2}}))
    assert chosen.file.hparams == {"ham_nmf": {"steps": 2}}
    by_class = suite.load("quick", Overrides(modules=["ham_nmf"], hparams={"HamNMF": {"steps": 2}}))
    assert by_class.file.hparams == {"ham_nmf": {"steps": 2}}
    for hparams in ({"ham_cd": {"steps": 3}}, {"": {"nonsense": 3}}):
        with pytest.raises(UsageError, match=r"no module of this run has it \(sa, ham_nmf\)"):
            suite.load("quick", Overrides(modules=["sa", "ham_nmf"], hparams=hparams))


@pytest.mark.plugin("crossover")
def test_the_example_in_the_docs_names_every_key_and_is_a_suite(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "docs" / "suite-files.md").read_text(encoding="utf-8")
    example = text.split("```toml")[2].split("```")[0].replace(', "my_module.py:MyContext"', "")
    loaded = load(tmp_path, example)
    assert len(loaded.cases()) == 2 * (1 + 2) * 2 + 1
    for model in (file.SuiteFile, file.Axes, Measure, file.Gate):
        for key in model.model_fields:
            assert key in example


def test_two_modules_of_the_same_name_are_refused(tmp_path: Path) -> None:
    source = "from torch import nn\nclass Block(nn.Module):\n    def __init__(self, channels): super().__init__()\n"
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(source, encoding="utf-8")
    both = [f"{tmp_path / name}:Block" for name in ("one.py", "two.py")]
    with pytest.raises(UsageError, match=r"one.py:Block and .*two.py:Block have the same name 'Block'"):
        suite.load("quick", Overrides(modules=both)).cases()


def test_an_option_is_not_told_as_a_key_of_a_file() -> None:
    with pytest.raises(UsageError, match=r"^device 'foo': unknown device 'foo'"):
        suite.load("quick", Overrides(also_on=["foo"]))


@pytest.mark.parametrize(
    ("overrides", "kept"),
    [
        (Overrides(), True),
        (Overrides(modules=["sa", "ham_nmf"]), True),
        (Overrides(conditions={"device": ["cpu"]}), True),
        (Overrides(modules=["sa", "mhsa"]), False),
        (Overrides(modules=["*"]), False),
        (Overrides(conditions={"shape": [(2, 512, 96, 96)]}), False),
    ],
)
def test_the_title_of_a_papers_table_is_for_its_own_rows(overrides: Overrides, kept: bool) -> None:
    found = suite.load("table3", overrides).file
    assert ("Table 3" in found.title) == kept
    assert found.measure.memory_device == "cuda"
