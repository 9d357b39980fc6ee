CREATE TABLE events (
    lsn            INTEGER PRIMARY KEY,
    at             INTEGER NOT NULL,
    session        TEXT,
    kind           TEXT NOT NULL,
    version        INTEGER NOT NULL,
    facts          TEXT NOT NULL,
    content_digest BLOB CHECK (length(content_digest) = 32),
    chain          BLOB NOT NULL CHECK (length(chain) = 32)
) STRICT;

-- Salt and bytes are absent once they are redacted.
CREATE TABLE contents (
    lsn   INTEGER PRIMARY KEY REFERENCES events (lsn),
    salt  BLOB,
    bytes BLOB,
    CHECK ((salt IS NULL) = (bytes IS NULL))
) STRICT;

CREATE TABLE snapshots (
    slot    INTEGER PRIMARY KEY CHECK (slot = 0),
    lsn     INTEGER NOT NULL,
    chain   BLOB NOT NULL,
    version INTEGER NOT NULL,
    digest  BLOB NOT NULL,
    bytes   BLOB NOT NULL
) STRICT;

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
