"""What is measured, and what a row is: cases, conditions, suite files, metrics, records."""
