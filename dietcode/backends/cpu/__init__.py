"""CPUs: ``backend`` (entry point), ``domain`` and ``listed_domain`` (space and cost model), ``forms`` (what
belongs to a form), ``measuring`` (the device at work).
"""
