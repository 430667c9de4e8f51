-- One row for each thing that is paid: a call to a model that went through a gateway (`metered`), or
-- the word of a lane that none can meter on what one attempt cost. No dollar is in two rows, so that
-- what was spent is a sum over them.
CREATE TABLE paid (
    id                  INTEGER PRIMARY KEY,
    run                 TEXT NOT NULL,
    recipe              TEXT NOT NULL,
    node                TEXT NOT NULL,
    round               INTEGER NOT NULL,
    attempt             INTEGER NOT NULL,
    lane                TEXT NOT NULL,
    metered             INTEGER NOT NULL,
    model               TEXT,              -- the one that the call named
    at_ms               INTEGER NOT NULL,  -- when the call was admitted, or the attempt ended
    duration_ms         INTEGER,           -- NULL: the end of the call is not on record
    input_tokens        INTEGER,           -- these four are NULL when the vendor did not say
    cache_read_tokens   INTEGER,
    cache_write_tokens  INTEGER,
    output_tokens       INTEGER,
    complete            INTEGER NOT NULL,  -- 0: more may have been dealt than is known
    failure             TEXT,
    status              INTEGER,
    cost_usd            REAL,              -- NULL: not known
    reserved_usd        REAL               -- what budgets count at least, while more may be owed
) STRICT;

INSERT INTO paid (run, recipe, node, round, attempt, lane, metered, at_ms, complete, cost_usd)
SELECT run, recipe, node, round, attempt, lane, 0, at_ms, 1, cost_usd FROM costs ORDER BY rowid;

DROP TABLE costs;
ALTER TABLE paid RENAME TO costs;

-- With the amounts in them, so that sums over a day, a run or an attempt read nothing but the index.
CREATE INDEX costs_by_time ON costs (at_ms, cost_usd, reserved_usd);
CREATE INDEX costs_by_attempt ON costs (run, node, round, attempt, metered, cost_usd, reserved_usd);
