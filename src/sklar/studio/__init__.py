"""The studio: from a table to a published release in a browser on the custodian's own machine.

Pages are rendered here and call the functions that the command line calls; they keep no logic of their own. What was
done is in files of one folder (schema, ledger, models, reports), so that every page can show the commands that repeat
it. `guard` decides who may ask at all, `folder` which files exist for it, `work` does what takes long in a process of
its own, `pages/` has one module per step.
"""
