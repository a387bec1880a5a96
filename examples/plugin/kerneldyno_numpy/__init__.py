"""A worked example of a plug-in: one backend ("numpy") and one toolkit ("pairwise"). See docs/extending.md.

The backend is loaded by the zygote and works in runners; the toolkit is loaded by judges. Neither imports the other.
"""
