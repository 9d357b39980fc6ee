-- Folded from the records, and nothing but a cache of what they say.
CREATE TABLE views (
    name  TEXT NOT NULL,
    key   TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (name, key)
) STRICT, WITHOUT ROWID;

-- The last record in each view, and the version of the view that folded it.
CREATE TABLE view_positions (
    name    TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    lsn     INTEGER NOT NULL,
    chain   BLOB NOT NULL
) STRICT, WITHOUT ROWID;
