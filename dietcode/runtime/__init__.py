"""The half of a library that a deployed program needs: verify, load, pack, call. No compiler."""
