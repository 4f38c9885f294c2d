"""HTTP: the REST interface under ``/api/v1``, the dashboard, health and metrics.

``app`` puts it together, ``run`` serves it; ``guards`` stands before every route, and every error leaves as a
problem document of ``problems``. Nothing is imported here, so that `settings` stays light.
"""
