"""The history of the database's schema, run by `dietcode_server.store.database.Database.upgrade`."""
