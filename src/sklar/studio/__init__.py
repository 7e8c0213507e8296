"""The studio: from a table to a published release in a browser on the custodian's own machine.

Pages call what the command line calls, and what was done is in files of one folder, so that every page can show the
commands that repeat it. `guard` decides who may ask, `folder` which files exist, `work` does what takes long.
"""
