CREATE TABLE countersign.meta (
    key   text PRIMARY KEY,
    value bigint NOT NULL
);

-- One row a partition. Appends lock it and compare both numbers: the epoch of the owner, and the number of its connection.
-- A connection that was given up writes nothing any more, whatever of it is still on its way.
CREATE TABLE countersign.partitions (
    partition integer PRIMARY KEY,
    epoch     bigint NOT NULL,
    writer    bigint NOT NULL,
    probes    bigint NOT NULL
);

-- Session and key are bytes, since text cannot hold every character of them.
CREATE TABLE countersign.events (
    partition      integer NOT NULL,
    lsn            bigint NOT NULL,
    at             bigint NOT NULL,
    session        bytea,
    kind           text NOT NULL,
    version        integer NOT NULL,
    facts          text NOT NULL,
    content_digest bytea CHECK (octet_length(content_digest) = 32),
    chain          bytea NOT NULL CHECK (octet_length(chain) = 32),
    key            bytea,
    PRIMARY KEY (partition, lsn)
);

-- By digest, since an entry of an index has an upper size.
CREATE INDEX events_by_key ON countersign.events (partition, sha256(key), lsn) WHERE key IS NOT NULL;
CREATE INDEX events_by_session ON countersign.events (partition, sha256(session), lsn) WHERE session IS NOT NULL;

-- Salt and bytes are absent once they are redacted.
CREATE TABLE countersign.contents (
    partition integer NOT NULL,
    lsn       bigint NOT NULL,
    salt      bytea,
    bytes     bytea,
    PRIMARY KEY (partition, lsn),
    CHECK ((salt IS NULL) = (bytes IS NULL))
);

CREATE TABLE countersign.snapshots (
    partition integer PRIMARY KEY,
    lsn       bigint NOT NULL,
    chain     bytea NOT NULL,
    version   bigint NOT NULL,
    digest    bytea NOT NULL,
    bytes     bytea NOT NULL
);

-- Folded from the records, and nothing but a cache of what they say.
CREATE TABLE countersign.views (
    partition integer NOT NULL,
    name      text NOT NULL,
    key       bytea NOT NULL,
    value     bytea NOT NULL
);
CREATE UNIQUE INDEX views_by_key ON countersign.views (partition, name, sha256(key));
CREATE INDEX views_in_order ON countersign.views (partition, name, substring(key from 1 for 512));

-- The last record in each view, and the version of the view that folded it.
CREATE TABLE countersign.view_positions (
    partition integer NOT NULL,
    name      text NOT NULL,
    version   bigint NOT NULL,
    lsn       bigint NOT NULL,
    chain     bytea NOT NULL,
    PRIMARY KEY (partition, name)
);

INSERT INTO countersign.partitions (partition, epoch, writer, probes) VALUES (0, 0, 0, 0);
