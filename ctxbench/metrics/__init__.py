"""What is measured of a case, one metric a file, each with its unit and convention."""
