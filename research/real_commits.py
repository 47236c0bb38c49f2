"""Runs `ctxbench check` without times on commits of two repositories.

Run: python research/real_commits.py --clones FOLDER [--out results/gate-commits]
FOLDER has clones of both repositories, by their names; what their packages import must be installed. Each commit and
its parent are taken from there into a repository of two commits. `expected` in COMMITS was written from the diff,
before anything was run. What the CSV has already is not run again.
"""

import argparse
import csv
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gate_on_this_machine import ROOT
from stamp import stamp, write_stamp

from ctxbench.base.texts import listed

OUT = ROOT / "results" / "gate-commits"
SHAPE, BUDGET, GPU = (2, 64, 16, 16), "10m", "t4"
VIT, TIMM = "vit-pytorch", "pytorch-image-models"
PACKAGES = {VIT: "vit_pytorch", TIMM: "timm"}
CVT = {"proj_kernel": 3, "kv_proj_stride": 2, "depth": 1, "heads": 2}
MBCONV = {"dim_out": 64, "downsample": False}
DSSA = {"heads": 4, "dim_head": 16, "window_size": 4}
# Commit and block, hyper-parameters, and what the diff does to the block, by reading it.
COMMITS: list[tuple[str, str, str, Mapping[str, Any], str]] = [
    (VIT, "aeed338", "levit.py:FeedForward", {"mult": 2, "dropout": 0.0}, "outputs"),
    (VIT, "ca3cef9", "vit.py:Attention", {"heads": 4, "dim_head": 16}, "same"),
    (VIT, "81661e3", "max_vit.py:MBConv", MBCONV, "outputs"),
    (VIT, "2c6dd70", "max_vit.py:MBConv", MBCONV, "outputs, dearer"),
    (VIT, "9f87d1c", "max_vit.py:MBConv", MBCONV, "outputs, cheaper"),
    (VIT, "5d4c798", "sep_vit.py:DSSA", DSSA, "same"),
    (VIT, "d93cd84", "sep_vit.py:DSSA", DSSA, "outputs, dearer"),
    (VIT, "c2b2db2", "scalable_vit.py:InteractiveWindowedSelfAttention", {"heads": 4, "window_size": 4}, "same"),
    (VIT, "e532424", "nest.py:Transformer", {"seq_len": 256, "depth": 1, "heads": 4, "mlp_mult": 2}, "outputs"),
    (VIT, "17cb897", "nest.py:Attention", {"heads": 4}, "same"),
    (VIT, "4f3dbd0", "pit.py:DepthWiseConv2d", {"dim_out": 128, "kernel_size": 3, "padding": 1, "stride": 2}, "dearer"),
    (VIT, "3df6c31", "cvt.py:Transformer", CVT, "outputs"),
    (VIT, "0ad09c4", "cvt.py:Transformer", CVT, "same"),
    (
        *(VIT, "7807f24", "twins_svt.py:Transformer"),
        *({"depth": 1, "heads": 2, "local_patch_size": 4, "global_k": 4}, "outputs"),
    ),
    (
        *(VIT, "0df1505", "levit.py:Transformer"),
        *({"fmap_size": 16, "depth": 1, "heads": 2, "dim_key": 16, "dim_value": 32}, "same"),
    ),
    (TIMM, "b81e79aa", "models/layers/bottleneck_attn.py:BottleneckAttn", {"feat_size": [16, 16]}, "outputs"),
    (TIMM, "3b9032ea", "models/layers/halo_attn.py:HaloAttn", {}, "same"),
    (TIMM, "b7a568f0", "models/layers/non_local_attn.py:BatNonLocalAttn", {"block_size": 8}, "same"),
    (TIMM, "8bf63b6c", "models/layers/eca.py:EcaModule", {}, "same"),
    (TIMM, "bda8ab01", "models/layers/selective_kernel.py:SelectiveKernel", {}, "outputs, cheaper"),
    (TIMM, "02d0f277", "models/davit.py:Stem", {"out_chs": 64}, "cheaper"),
    (TIMM, "2d734d90", "layers/attention2d.py:Attention2d", {"num_heads": 4}, "same"),
    (TIMM, "ce73a2c8", "layers/layer_scale.py:LayerScale2d", {}, "same"),
    (TIMM, "38286760", "layers/norm_act.py:RmsNormAct2d", {}, "outputs"),
    (
        *(TIMM, "307a935b", "models/layers/split_attn.py:SplitAttn"),
        *({"out_channels": 64, "kernel_size": 3, "padding": 1}, "same"),
    ),
    (TIMM, "76d16698", "layers/mlp.py:Mlp", {"use_conv": True}, "same"),
    (TIMM, "88889de9", "layers/lambda_layer.py:LambdaLayer", {"feat_size": [16, 16]}, "same"),
    (TIMM, "ad57dce0", "layers/global_context.py:GlobalContext", {}, "same"),
    (TIMM, "110a7c49", "models/layers/cbam.py:CbamModule", {}, "not importable"),
]
RENAMED = {"307a935b": "SplitAttnConv2d"}
COLUMNS = (
    *("repository", "commit", "block", "settings", "expected", "exit_code", "exit_name", "outputs", "change"),
    *("growth_percent", "seconds", "load"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clones", type=Path, required=True, help="a folder with clones of both repositories")
    parser.add_argument("--out", type=Path, default=OUT, help="where the CSV goes")
    given = parser.parse_args()
    path = given.out / "commits.csv"
    if not path.exists():
        write_stamp(given.out, stamp())
    found = {row["commit"]: row for row in rows(path)}
    for repository, commit, block, settings, expected in COMMITS:
        name = next((each for each in found if each.startswith(commit)), "")
        if not name:
            with tempfile.TemporaryDirectory() as folder:
                name = two_commits(given.clones / repository, commit, Path(folder), PACKAGES[repository])
                place = f"{PACKAGES[repository]}/{block}"
                told = check(Path(folder), place, settings, RENAMED.get(commit))
            asked = {"repository": repository, "commit": name, "block": place, "settings": json.dumps(settings)}
            found[name] = asked | {"expected": expected} | told
            print(*found[name].values(), sep=" | ", flush=True)
        write(path, found)


def two_commits(clone: Path, commit: str, folder: Path, package: str) -> str:
    """A repository of the parent's package and the commit's; the whole name of the commit."""

    def git(where: Path, *command: str) -> str:
        own = ["-c", "user.name=ctxbench", "-c", "user.email=ctxbench@localhost"]
        return subprocess.run(
            ["git", "-C", str(where), *own, *command], check=True, text=True, capture_output=True
        ).stdout.strip()

    git(folder, "init", "--quiet")
    for each in (f"{commit}^1", commit):
        subprocess.run(["rm", "-rf", str(folder / package)], check=True)
        packed = subprocess.run(["git", "-C", str(clone), "archive", each, package], check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
        git(folder, "add", "--all", "--force")
        git(folder, "commit", "--quiet", "--allow-empty", "--message", each)
    return git(clone, "rev-parse", commit)


def check(tree: Path, block: str, settings: Mapping[str, Any], old_name: str | None) -> dict[str, Any]:
    """Verdict of `ctxbench check` on the last commit, with its outputs and the growth of its exact quantities."""
    values = {
        key: f"({','.join(map(str, each))})" if isinstance(each, list) else each for key, each in settings.items()
    }
    asked = ["--against", "HEAD~1", "--module", block, "--shape", ",".join(map(str, SHAPE)), "--for", GPU]
    for key, value in values.items():
        asked += ["--set", f"{key}={json.dumps(value) if isinstance(value, bool) else value}"]
    asked += ["--renamed", f"{old_name}={block.partition(':')[2]}"] if old_name else []
    suite = (ROOT / "suites" / "ci.toml").read_text(encoding="utf-8").replace(', "latency"]', "]")
    (tree / ".git" / "suite.toml").write_text(suite, encoding="utf-8")
    asked += ["--suite", str(tree / ".git" / "suite.toml")]
    written = tree / ".git" / "result.json"
    start, load = time.monotonic(), os.getloadavg()[0]
    command = [sys.executable, "-m", "ctxbench", "check", *asked, "--budget", BUDGET, "--json", str(written)]
    ended = subprocess.run(command, cwd=tree, text=True, capture_output=True, check=False)
    taken = {"exit_code": ended.returncode, "seconds": f"{time.monotonic() - start:.0f}", "load": f"{load:.1f}"}
    if not written.exists():
        print(shlex.join(command), ended.stdout[-2000:], ended.stderr[-2000:], file=sys.stderr)
        return taken
    result = json.loads(written.read_text(encoding="utf-8"))
    changes = {
        each["quantity"]: 100 * each["difference"] / each["baseline"]
        for each in result["exact"]["changes"]
        if each["baseline"] and each["difference"] is not None
    }
    outputs = [*result["outputs"]["cases"], {"verdict": "", "change": None}][0]
    return taken | {
        "exit_name": result["exit_name"],
        "outputs": outputs["verdict"],
        "change": "" if outputs["change"] is None else f"{outputs['change']:.2g}",
        "growth_percent": "; ".join(f"{name} {share:+.2f}" for name, share in changes.items()),
    }


def sentences(found: Sequence[Mapping[str, str]]) -> str:
    """Sentences on how many verdicts are what the diffs say, and which are not."""
    left = [row for row in found if row["outputs"] == "not compared"]
    decided = [row for row in found if row not in left]
    kinds = listed([f"{sum(row['repository'] == name for row in found)} of {name}" for name in (VIT, TIMM)])
    wrong = [f"{row['commit'][:8]} (exit code {row['exit_code']})" for row in decided if not is_right(row)]
    loads = [float(row["load"]) for row in found]
    text = (
        f"Of {len(found)} commits ({kinds}), checked beside load averages of {min(loads):.0f} to {max(loads):.0f}, "
        f"{len(decided) - len(wrong)} came to what the diffs say."
    )
    text += f" Of {len(left)} no outputs were compared in time." if left else ""
    text += f" Not what they say: {listed(wrong)}." if wrong else ""
    return text


def is_right(row: Mapping[str, str]) -> bool:
    """Return whether the check says what was read from the diff."""
    expected, grown = (
        row["expected"],
        [float(each.split()[-1]) for each in filter(None, row["growth_percent"].split("; "))],
    )
    if expected == "not importable":
        return row["exit_code"] in ("2", "5")
    if expected == "same":
        return (row["exit_code"], row["outputs"]) == ("0", "same")
    found = {
        "outputs": row["outputs"] == "changed",
        "dearer": row["exit_code"] == "1",
        "cheaper": any(each < 0 for each in grown),
    }
    return all(found[each] for each in expected.split(", "))


def rows(path: Path = OUT / "commits.csv") -> list[dict[str, Any]]:
    """The rows of the CSV; none where there is none."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def write(path: Path, found: Mapping[str, Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(found.values())


if __name__ == "__main__":
    main()
