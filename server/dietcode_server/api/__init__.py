"""HTTP: the REST interface under ``/api/v1``, health and metrics.

``guards`` stands before every route, and every error leaves as a problem document of ``problems``.
"""
