"""The service: jobs, database, engine, API, dashboard.

``settings`` say how; ``store`` keeps everything in SQL, ``engine`` runs jobs in child processes, ``api``
answers HTTP and ``dashboard`` shows it to people; ``app`` puts these two together, ``run`` begins, and
``serving`` serves them.
Nothing is imported here, so that `settings` stays light.
"""
