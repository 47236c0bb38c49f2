"""What everything rests on: errors, files, numbers, statistics, clocks."""
