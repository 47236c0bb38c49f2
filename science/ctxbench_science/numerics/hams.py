"""Matrix decompositions that the suites of the Hamburger paper are about."""

HAMS = ("ham_nmf", "ham_cd", "ham_vq")
