"""Model of a measurement and its row: cases, conditions, suite files, metrics, records."""
