"""The time of a pass on a GPU that is not here: from data sheets, calibrated efficiencies and the operators on meta.

Imports no torch: suites check the names of devices.
"""

# How the note of a pass begins that takes as long as its launches.
LAUNCH_BOUND = "Launch-bound"
