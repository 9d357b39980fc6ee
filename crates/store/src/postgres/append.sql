WITH owner AS MATERIALIZED (
    SELECT epoch, writer FROM countersign.partitions WHERE partition = $1 FOR UPDATE
),
head AS MATERIALIZED (
    SELECT lsn, chain FROM countersign.events WHERE partition = $1 ORDER BY lsn DESC LIMIT 1
),
turn AS MATERIALIZED (
    SELECT owner.epoch FROM owner LEFT JOIN head ON true
    WHERE owner.epoch = $2 AND owner.writer = $3 AND coalesce(head.lsn, 0) = $4 AND coalesce(head.chain, $5::bytea) = $5
),
recorded AS (
    INSERT INTO countersign.events (partition, lsn, at, session, kind, version, facts, content_digest, chain, key)
    SELECT $1, r.* FROM turn, unnest(
        $6::bigint[], $7::bigint[], $8::bytea[], $9::text[], $10::integer[], $11::text[], $12::bytea[], $13::bytea[], $14::bytea[]
    ) AS r
),
kept AS (
    INSERT INTO countersign.contents (partition, lsn, salt, bytes)
    SELECT $1, r.* FROM turn, unnest($15::bigint[], $16::bytea[], $17::bytea[]) AS r
),
moved AS (
    UPDATE countersign.view_positions AS p SET lsn = $20, chain = $21
    FROM turn, unnest($18::text[], $19::bigint[]) AS v (name, version)
    WHERE p.partition = $1 AND p.name = v.name AND p.version = v.version AND p.lsn = $4 AND p.chain = $5
    RETURNING p.name
),
put AS (
    INSERT INTO countersign.views (partition, name, key, value)
    SELECT $1, r.name, r.key, r.value
    FROM moved JOIN unnest($22::text[], $23::bytea[], $24::bytea[]) AS r (name, key, value) ON r.name = moved.name
    ON CONFLICT (partition, name, sha256(key)) DO UPDATE SET value = excluded.value
),
removed AS (
    DELETE FROM countersign.views AS v
    USING moved, unnest($25::text[], $26::bytea[]) AS r (name, key)
    WHERE v.partition = $1 AND v.name = moved.name AND r.name = v.name AND sha256(v.key) = sha256(r.key)
)
SELECT (SELECT count(*) FROM turn), ARRAY(SELECT name FROM moved)
