"""Plots of a study, and pages for a browser: of a study, and of one model's attention.

A page is one file that needs no network. Its charts are Vega-Lite; without scripts it shows the
same charts as pictures.
"""
