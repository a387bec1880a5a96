"""`kerneldyno report`: turn a file of results or of trajectories into one self-contained HTML page.

reading     the file: its kind, line by line
wording     a result in words
candidates  a candidate, from a result or a turn
joining     requests: sources, references, problems
shelf       long texts within a budget
figures     all counts
elapsed     how long the run took, and how much of it was work
fast        wins of a suite, by group
groups      shares of correct and fast candidates, by group of problems
making      everything, from files to a page
charts, sections, markup, packing, page, *.html, *.css, *.js: the page
"""
