"""The loop over all packages: seed, space, measure, fit, select, build.

Processing order::

    search       which parts of the search are on
    seeding      where the space starts: MetaSchedule, the register file, earlier workloads
    planner      what to measure next: rank, expand, drop
    trials       one batch: build, check, time, prune
    decisions    a round as a record and as a sentence
    finals       the leaders read again
    exploration  all of these, round after round, until the records are complete
    measuring    that, for a keeper of records
    assembly     records to a library's parts: fit, select, rule
    size_cap     choosing again where the file is larger than asked
    verification a finished library run in every category
    tune         everything, for the command line and the server; reselect: without measuring
    report       what a person reads afterwards; events: what is reported meanwhile

What differs between kinds of devices comes from `dietcode.backends`.
"""
