"""See DESIGN: the benchmarks room."""
