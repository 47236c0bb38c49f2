"""The gate: baseline against candidate, in pairs of fresh processes, with three verdicts a row."""
