-- One row a node: a gateway process that may own realms.
CREATE TABLE IF NOT EXISTS countersign.nodes (
    name      text PRIMARY KEY,
    process   text NOT NULL,
    advertise text NOT NULL,
    program   text NOT NULL,
    addresses text NOT NULL,
    lease     interval NOT NULL,
    seen      timestamptz NOT NULL,
    draining  boolean NOT NULL DEFAULT false
);

-- One row a realm. A node owns it until the lease ends, by the clock of this server.
CREATE TABLE IF NOT EXISTS countersign.leases (
    realm        text PRIMARY KEY,
    node         text,
    process      text,
    term         bigint NOT NULL DEFAULT 0,
    taken        timestamptz NOT NULL DEFAULT '-infinity',
    until        timestamptz NOT NULL DEFAULT '-infinity',
    next_owner       text,
    next_owner_until timestamptz NOT NULL DEFAULT '-infinity'
);

INSERT INTO countersign.meta (key, value) VALUES ('cluster_version', 1) ON CONFLICT (key) DO NOTHING;
