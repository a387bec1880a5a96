"""`kerneldyno report`: a file of results or of trajectories as one HTML page that needs nothing else.

reading     the file: which kind it is, line by line
wording     a result in words
candidates  a candidate, from a result or a turn
joining     requests: sources, references, problems
shelf       long texts within a budget
figures     what is counted
elapsed     how long it took, and how much of it was work
fast        what is won of a suite, by group
groups      what is right and fast, by group of problems
making      all of it, from files to a page
charts, sections, markup, packing, page, *.html, *.css, *.js: the page
"""
