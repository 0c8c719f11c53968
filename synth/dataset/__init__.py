"""See DESIGN: the dataset room."""
