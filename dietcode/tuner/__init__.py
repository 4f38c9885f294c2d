"""The loop over all packages: seed, space, measure, fit, select, build.

``events`` (what a listener hears), ``exploration`` (fills the records), ``assembly`` (records to a library),
``tune`` (both, for the command line), ``report`` (what a person reads afterwards).
"""
