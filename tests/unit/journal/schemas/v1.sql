-- A journal of schema version 1, as it was written; never change it.
PRAGMA application_id = 1398361424;
PRAGMA auto_vacuum = INCREMENTAL;
BEGIN TRANSACTION;
CREATE TABLE claims (issue_id TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "claims" VALUES('id-1','{"issue":{"id":"id-1","identifier":"SYM-1","title":"A title","state":"Todo","dispatchable":true},"kind":"running","owner":{"boot_id":"boot","pid":42,"started":12.5},"since_wall_ms":1700000000000}');
INSERT INTO "claims" VALUES('id-9','{"issue":{"id":"id-9","identifier":"SYM-9","title":"Gr\u00fc\u00dfe \ud800 \ud83d\ude00","state":"In Progress","dispatchable":false,"not_dispatchable_reason":"a draft","native_ref":{"a":true,"b":[1,null,{"x":2.5}]},"description":"Two\nlines","priority":2,"branch_name":"b","url":"https://tracker.example/9","assignee_id":"someone","labels":["one","two"],"blocked_by":[{"id":"id-1","identifier":"SYM-1","state":"Todo"},{}],"created_at":"2026-03-04T05:06:07.000008+00:00","updated_at":"2026-03-04T05:06:07.000008+00:00"},"kind":"blocked","owner":{"boot_id":"boot","pid":42,"started":12.5},"since_wall_ms":1700000000000,"run_id":"r-9","attempt":3,"due_wall_ms":1700000000010,"error":"why","idle_attempts":2,"failures":4,"hopeless":true,"workspace_path":"/w/SYM-9","resume":{"reason":"answered","thread":{"thread_id":"t","input_tokens":1,"output_tokens":2,"total_tokens":3},"question":"which?","answer":"that"},"failure":{"category":"turn_input_required","blame":"agent","message":"asks","retryable":false,"hint":"answer it","where":"a:1","retry_after_ms":5},"question":"which?","settled":true}');
CREATE TABLE comments (
    issue_id TEXT NOT NULL, kind TEXT NOT NULL, comment_id TEXT NOT NULL, fingerprint TEXT NOT NULL,
    at_wall_ms INTEGER NOT NULL, PRIMARY KEY (issue_id, kind)
) WITHOUT ROWID;
INSERT INTO "comments" VALUES('id-1','skills','c','f',1700000000000);
CREATE TABLE days (day TEXT PRIMARY KEY, tokens INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO "days" VALUES('2026-11-21',7);
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, issue_id TEXT NOT NULL, issue_identifier TEXT NOT NULL,
    run_id TEXT, at_wall_ms INTEGER NOT NULL, event TEXT NOT NULL, message TEXT NOT NULL
);
INSERT INTO "events" VALUES(1700000000001,'id-1','SYM-1','r-1',1700000000001,'said','message 1');
INSERT INTO "events" VALUES(1700000000002,'id-1','SYM-1',NULL,1700000000002,'said','message 2');
CREATE TABLE runs (
    run_id TEXT PRIMARY KEY, issue_id TEXT NOT NULL, issue_identifier TEXT NOT NULL,
    started_wall_ms INTEGER NOT NULL, ended_wall_ms INTEGER, outcome TEXT, record TEXT NOT NULL
);
INSERT INTO "runs" VALUES('r-1','id-1','SYM-1',1700000000001,NULL,NULL,'{"run_id":"r-1","issue_id":"id-1","issue_identifier":"SYM-1","started_wall_ms":1700000000001,"agent":{"boot_id":"boot","pid":42,"started":12.5}}');
INSERT INTO "runs" VALUES('r-2','id-2','SYM-2',1700000000002,1700000000009,'succeeded','{"run_id":"r-2","issue_id":"id-2","issue_identifier":"SYM-2","started_wall_ms":1700000000002,"ended_wall_ms":1700000000009,"outcome":"succeeded","agent":{"boot_id":"boot","pid":42,"started":12.5}}');
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "settings" VALUES('paused','true');
CREATE TABLE skill_runs (run_id TEXT PRIMARY KEY, commit_id TEXT, at_wall_ms INTEGER NOT NULL);
INSERT INTO "skill_runs" VALUES('r-1','abc',1700000000000);
CREATE TABLE skill_uses (
    run_id TEXT NOT NULL REFERENCES skill_runs (run_id) ON DELETE CASCADE, position INTEGER NOT NULL,
    name TEXT NOT NULL, path TEXT NOT NULL, sha256 TEXT, listed INTEGER NOT NULL, seen INTEGER NOT NULL,
    PRIMARY KEY (run_id, position)
) WITHOUT ROWID;
INSERT INTO "skill_uses" VALUES('r-1',0,'a','/a','1111111111111111111111111111111111111111111111111111111111111111',1,1);
CREATE TABLE spent (
    issue_id TEXT PRIMARY KEY, tokens INTEGER NOT NULL, turns INTEGER NOT NULL, at_wall_ms INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "spent" VALUES('id-1',5,2,1700000000000);
CREATE INDEX runs_by_issue ON runs (issue_identifier, started_wall_ms);
CREATE INDEX runs_by_start ON runs (started_wall_ms);
CREATE INDEX runs_alive ON runs (run_id) WHERE ended_wall_ms IS NULL;
CREATE INDEX events_by_issue ON events (issue_identifier);
CREATE INDEX events_by_run ON events (run_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',1700000000002);
COMMIT;
PRAGMA user_version = 1;
