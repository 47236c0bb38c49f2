"""The time of a pass on a GPU that is not here: from data sheets, calibrated efficiencies and the operators on meta.

Imports no torch: suites check the names of devices.
"""

# The code of the note on a pass that takes as long as its launches.
LAUNCHES = "time_launches"
# What the gradient of a training step begins with, and whose step may follow: see `ctxbench.predict.training`.
LOSSES = ("sum", "cross-entropy")
OPTIMIZERS = ("sgd", "adamw")
