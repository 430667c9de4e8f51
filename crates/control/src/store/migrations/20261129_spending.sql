-- What each asked lane cost: one row for each attempt of a node, written with the event of its end.
-- Not tied to `runs`: a run that is cleaned away has been paid all the same, and the daily budget
-- would begin anew with every clean.
CREATE TABLE costs (
    run       TEXT NOT NULL,
    recipe    TEXT NOT NULL,
    node      TEXT NOT NULL,
    round     INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    lane      TEXT NOT NULL,
    at_ms     INTEGER NOT NULL,
    cost_usd  REAL                 -- NULL: the lane did not say
) STRICT;

-- With the amount in it, so that a sum over a day reads nothing but the index.
CREATE INDEX costs_by_time ON costs (at_ms, cost_usd);
