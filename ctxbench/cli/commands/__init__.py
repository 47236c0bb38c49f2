"""The commands of the core, each a file."""

from ctxbench.plugin import Command

COMMANDS = {
    "run": Command(
        "Measure",
        "Measure the cases of a suite, write a run folder and print its table.",
        run="run:run",
        order=1,
        examples=(
            "ctxbench run --static                                # counts and predicted memory, in seconds",
            "ctxbench run --modules ham_nmf,sa --shape 1,512,64,64 --set ham_nmf.steps=3",
            "ctxbench run --suite field --out runs/field          # `ctxbench list --suites` has the suites",
        ),
    ),
    "resume": Command(
        "Measure",
        "Measure what a run folder lacks, with the settings that it was begun with, and print its table.",
        run="resume:resume",
        order=2,
    ),
    "new": Command("Modules", "Write a new file with a small working module to start from.", run="new:new", order=3),
    "report": Command(
        "Read and decide",
        "Write tables, figures and a page from run folders; measure nothing.",
        run="report:report",
        order=1,
        examples=(
            "ctxbench report results/table3-cpu",
            "ctxbench report RUN --columns params,macs,latency_infer --label tab:cost    # a LaTeX table",
        ),
    ),
    "diff": Command(
        "Read and decide",
        "Print the numbers in which two runs differ, as ratios with intervals.",
        run="diff:diff",
        order=2,
    ),
    "env": Command(
        "Read and decide",
        "Print the hardware, software and settings that a run records, as JSON.",
        run="env:env",
        order=6,
    ),
    "list": Command(
        "Modules",
        "List the modules that ctxbench and installed packages bring, by family; the suites; networks; or devices.",
        run="list_modules:list_modules",
        order=1,
    ),
}
