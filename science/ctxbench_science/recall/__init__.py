"""Can a module bring context? Small synthetic tasks on handwritten digits, and the training that answers.

The idea is that of associative recall in language modelling (Arora et al., Zoology: Measuring and Improving Recall in
Efficient Language Models, ICLR 2024): a task of minutes that tells attention from its efficient rivals.
"""

from ctxbench.plugin import Plugin

# Of tasks and trainings: another number where a change of their code may move an accuracy, so that none is read from a
# run of the older code.
RECIPE = 1
PLUGIN = Plugin(
    about="trains modules on small tasks, to tell which context they can bring",
    needs=("claims", "macs", "memory"),
    metrics=("metric:METRIC",),
    figures=("figure:FIGURES",),
    sentences=("sentences:abilities",),
    titles=("sentences:title",),
    headings={"trained": "sentences:heading"},
    suites="suites",
    notes={
        "recall_full_rank": "Rank {rank} is full rank in these scenes, where it factors {height} x {columns}: nothing "
        "has to be left out, so they do not show what the rank costs.",
        "recall_stored": "Recall is read from {run} (torch {torch}), where the same code was trained by the same "
        "recipe.",
        "recall_unsteady": "Two trainings with one seed differ: the module itself draws random numbers.",
        "recall_peeks": "It gets the labels of other scenes right on {task}: it reads them instead of the scene.",
        "recall_diverged": "the training on {task} diverged: {reason}",
    },
)
