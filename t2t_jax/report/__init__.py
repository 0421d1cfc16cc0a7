"""Pages for a browser: of a study, and of what one model attends to.

Each is one file that needs no network. Charts are Vega-Lite; where no script runs the same charts
stand there as pictures.
"""
