"""Plots and the page of a study, and the picture of a model's attention.

The page is one file that needs no network. Its charts are Vega-Lite; without scripts it shows the
same charts as pictures.
"""
