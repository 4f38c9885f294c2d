"""The dashboard: pages rendered here with Jinja2, kept fresh by htmx, their charts drawn by ECharts.

Everything that a page loads is in ``static/``; it needs no network but this server. A page shows what the API
shows, and changes things through it: `static/app.js` sends a button's request there.
"""
