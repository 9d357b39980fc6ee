-- An index, not a part of the record: the chain does not cover it.
ALTER TABLE events ADD COLUMN key TEXT;

-- Within equal values SQLite keeps an index in the order of lsn.
CREATE INDEX events_by_key ON events (key) WHERE key IS NOT NULL;
CREATE INDEX events_by_session ON events (session) WHERE session IS NOT NULL;
