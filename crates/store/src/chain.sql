SELECT lower(hex(coalesce((SELECT chain FROM events WHERE lsn = e.lsn - 1), zeroblob(32))))
    || length(lsn) || ':' || lsn || ','
    || length(at) || ':' || at || ','
    || coalesce(length(CAST(session AS BLOB)) || ':' || session || ',', '-')
    || length(CAST(kind AS BLOB)) || ':' || kind || ','
    || length(version) || ':' || version || ','
    || length(CAST(facts AS BLOB)) || ':' || facts || ','
    || CASE WHEN content_digest IS NULL THEN '-' ELSE '64:' || lower(hex(content_digest)) || ',' END,
    lower(hex(chain))
FROM events AS e WHERE lsn = 7
