"""The time of a pass on a GPU that is not here: from data sheets, calibrated efficiencies and the operators on meta.

Imports no torch: suites check the names of devices.
"""

from statistics import NormalDist

# The share of passes in the band, its half width in standard deviations, and the source of error that no two passes
# share.
CONFIDENCE = 0.8
CONFIDENCE_SDS = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
KERNELS = "kernels"
# The code of the note on a pass that takes as long as its launches.
LAUNCHES = "time_launches"
