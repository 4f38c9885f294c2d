"""CPUs: ``backend`` (entry point), ``domain`` (space and cost model), ``measuring`` (the device at work)."""
