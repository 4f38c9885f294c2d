"""Where a server is unless somebody says otherwise."""

DEFAULT_SERVER = "http://127.0.0.1:8000"
