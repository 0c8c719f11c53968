"""See2Perceive, first half: benchmark failures in, a training dataset out. Importing this loads no torch."""

__version__ = "0.1.0"
