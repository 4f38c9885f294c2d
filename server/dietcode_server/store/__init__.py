"""The database of the service: jobs and their events, tuning records, published libraries and their bytes."""
