-- One row for each run: what lists and scripts ask for. Everything else follows from its events.
CREATE TABLE runs (
    run            TEXT PRIMARY KEY,
    recipe         TEXT NOT NULL,
    title          TEXT NOT NULL,
    repository     BLOB NOT NULL,      -- paths are bytes
    directory      BLOB NOT NULL,
    backend        TEXT NOT NULL,
    status         TEXT,               -- NULL until the one terminal status is written
    reason         TEXT,
    detail         TEXT,
    branch         TEXT,
    cost_usd       REAL NOT NULL DEFAULT 0,
    cost_unknown   INTEGER NOT NULL DEFAULT 0,
    started_at_ms  INTEGER NOT NULL,
    ended_at_ms    INTEGER
) STRICT;

CREATE INDEX runs_by_start ON runs (started_at_ms);

-- The journal of each run. `sequence` counts from 1 without gaps.
CREATE TABLE events (
    run       TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    sequence  INTEGER NOT NULL,
    at_ms     INTEGER NOT NULL,
    payload   TEXT NOT NULL,
    PRIMARY KEY (run, sequence)
) STRICT, WITHOUT ROWID;
