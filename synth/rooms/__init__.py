"""Procedural rooms with exact truth: compose a furnished room from a seed, render it, keep it on disk.

`compose` is numpy only; Mitsuba is imported inside the functions of `render` that need it, so importing this
package costs nothing.
"""
