"""The service: jobs, database, engine, API, dashboard.

``store`` keeps everything in SQL, ``engine`` runs jobs in child processes, ``api`` answers HTTP.
"""
