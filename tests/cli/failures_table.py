"""Every failure that a person can meet: what it says, and the exit code. CONTRIBUTING.md has it as a table.

python -m tests.cli.failures_table writes the table anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- failures -->\n", "<!-- /failures -->\n"

GAP = "…"  # in a sentence: whatever the case brings
NOTHING = "nothing"


@dataclass(frozen=True)
class Failure:
    """A row.

    Attributes:
        command: who says it.
        when: what went wrong.
        says: the first sentence on stderr, without ``error:``; where ``stdout``, a line there.
        exit_code: of the process.
        provoke: the command line that ends so: ``{tmp}`` is an empty working folder, ``{old}`` a 0.16.0
            database, ``{new}`` an upgraded one, ``{none}`` one without pgflow, ``{store}`` a Work Center
            store.
        before: what is done to {old} or {new} first.
        after: what undoes that.
        files: what is in the folder.
        test: instead of all that, the test that provokes it.
        stdout: whether it is a result rather than an error.
    """

    command: str
    when: str
    says: str
    exit_code: int
    provoke: str = ""
    before: str = ""
    after: str = ""
    files: tuple[tuple[str, str], ...] = ()
    test: str = ""
    stdout: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        """What matches the sentence as it is said."""
        return re.compile(".+".join(map(re.escape, self.says.split(GAP))))


_CONNECT = "tests/test_database.py"
_FILES = "tests/work_center/test_files.py"
_UNREADABLE = "The connection string cannot be read: "

_ANY = (
    Failure("any", "no such command", "No such command '…'.", 2, "upgarde"),
    Failure("any", "no such option", "No such option…", 2, "status --fromat json"),
    Failure(
        "any", "a value that an option does not take", "Invalid value for '…': …", 2, "status --format xml"
    ),
    Failure("any", "downgrade, which is no command", "No such command 'downgrade'. …", 2, "downgrade"),
    Failure("any", "an argument is missing", "Missing argument '…'.", 2, "work-center status"),
    Failure(
        "any",
        "a crash: a mistake of ours",
        "Unexpected …: …",
        1,
        test="tests/cli/test_main.py::test_an_error_is_a_sentence_a_remedy_and_an_exit_code",
    ),
    Failure(
        "any",
        "Ctrl-C, SIGTERM or SIGHUP while nothing is to be undone; replay and demo, always",
        "Ended by ….",
        1,
        test="tests/cli/test_main.py::test_an_error_is_a_sentence_a_remedy_and_an_exit_code",
    ),
    Failure(
        "any",
        "stdout or --output is closed or full",
        "The output could not be written: ….",
        1,
        test="tests/cli/test_outputs.py::test_a_report_that_does_not_fit_is_one_sentence",
    ),
    Failure(
        "any that only looks",
        "the reader of stdout has gone, such as head",
        NOTHING,
        1,
        test="tests/cli/test_outputs.py::"
        "test_a_command_that_only_looks_ends_without_a_word_when_its_reader_has_gone",
    ),
    Failure(
        "export, dirty-runs reconcile",
        "the reader of stdout has gone",
        "The output could not be written: ….",
        1,
        test="tests/cli/test_outputs.py::test_a_command_that_has_changed_something_says_so_all_the_same",
    ),
    Failure(
        "any",
        "the configuration file is not there",
        "The configuration file … cannot be read: ….",
        1,
        "--config nope.toml status",
    ),
    Failure(
        "any",
        "it is not TOML",
        "The configuration file … is not TOML: ….",
        1,
        "status",
        files=(("pgflow-migrate.toml", "x"),),
    ),
    Failure(
        "any",
        "a key that nobody knows",
        '…: there is no key "…".',
        1,
        "status",
        files=(("pgflow-migrate.toml", "dns = ''"),),
    ),
    Failure(
        "any",
        "a value that the option does not take",
        "…: … cannot be used: ….",
        1,
        "status",
        files=(("pgflow-migrate.toml", "status.format = 'xml'"),),
    ),
    Failure(
        "any",
        "a password in it",
        "…: … holds a password, which is not for a file that others read.",
        1,
        "status",
        files=(("pgflow-migrate.toml", "dsn = 'postgresql://me:secret@db/app'"),),
    ),
    Failure(
        "any",
        "a flag in it",
        "…: --… is for one call, and … not for a file.",
        1,
        "status",
        files=(("pgflow-migrate.toml", "upgrade.dry-run = true"),),
    ),
)

_CONNECTING = (
    Failure("connecting", "nothing names a database", "No database was named.", 1, "status"),
    Failure(
        "connecting",
        "--dsn is empty, an unset variable perhaps",
        "The connection string that was given is empty.",
        1,
        "audit --dsn ''",
    ),
    Failure(
        "connecting",
        "the string is another database's",
        _UNREADABLE + 'its scheme "…" is not PostgreSQL\'s.',
        1,
        "verify --dsn mysql://db/app",
    ),
    Failure(
        "connecting",
        "the string has a mistake",
        _UNREADABLE + 'it has a parameter "…" that libpq does not know.',
        1,
        "upgrade --dsn hots=db",
    ),
    Failure(
        "connecting",
        "no such host",
        "The host of … cannot be found.",
        1,
        test=f"{_CONNECT}::test_an_unknown_host_is_said",
    ),
    Failure(
        "connecting",
        "nobody listens",
        "No server listens at ….",
        1,
        "dirty-runs status --dsn postgresql://127.0.0.1:1/app",
    ),
    Failure(
        "connecting",
        "nobody answers within 10 s",
        "No answer from … in time.",
        1,
        test=f"{_CONNECT}::test_a_server_that_never_answers_runs_into_the_timeout",
    ),
    Failure(
        "connecting",
        "the password is wrong",
        'The server at … refuses the password of user "…".',
        1,
        test=f"{_CONNECT}::test_a_wrong_password_is_said_in_one_sentence",
    ),
    Failure(
        "connecting",
        "there is no password",
        'The server at … wants a password for user "…" and none was given.',
        1,
        test=f"{_CONNECT}::test_a_missing_password_is_said",
    ),
    Failure(
        "connecting",
        "no such database",
        'There is no database "…" at ….',
        1,
        test=f"{_CONNECT}::test_a_missing_database_is_said",
    ),
    Failure(
        "connecting",
        "SSL is wanted and not had",
        "The server at … has no SSL, which the connection string requires.",
        1,
        test=f"{_CONNECT}::test_a_server_without_ssl_is_said_when_ssl_is_required",
    ),
    Failure(
        "connecting",
        "--dsn twice",
        "Invalid value for '--dsn': given 2 times. Run the command once for each database.",
        2,
        "status --dsn service=a --dsn service=b",
    ),
    Failure(
        "connecting",
        "SSL fails",
        "SSL with the server at … fails: ….",
        1,
        "worker --flow flows:f --dsn 'host=127.0.0.1 port=1 sslmode=sometimes'",
        files=(
            ("flows.py", "from pgflow_migrate.worker import Flow\nf = Flow('f')\nf.step('a')(lambda x: x)\n"),
        ),
    ),
    Failure(
        "connecting",
        "no such service",
        "The service that the connection string names is not defined.",
        1,
        "prune-helper --dsn service=nope",
    ),
)

_LOOKING = (
    Failure("docs", "no such page", 'There is no page "…".', 2, "docs upgarde"),
    Failure(
        "audit",
        "--output cannot be opened",
        "… cannot be opened: ….",
        1,
        "audit --dsn {old} --output no/report",
    ),
    Failure(
        "audit",
        "findings block the upgrade",
        "1 finding stands in the way of the upgrade of database … at ….",
        3,
        "audit --dsn {old}",
        before="select pgflow.create_flow('bad__slug')",
        after="select pgflow.delete_flow_and_data('bad__slug')",
        stdout=True,
    ),
    Failure(
        "audit",
        "--sql with --format",
        "--sql prints a script, which has no --format: give one of the two.",
        2,
        "audit --sql --format json",
    ),
    Failure(
        "audit, verify",
        "a lock is held for 5 s",
        "The … waited 5 s for a lock: ….",
        1,
        test="tests/audit/test_read_only.py::test_it_does_not_wait_for_long",
    ),
    Failure(
        "status",
        "an upgrade holds its locks",
        "An upgrade is running (pid …), and has locked schema pgflow.",
        1,
        test="tests/cli/test_glance.py::test_an_upgrade_that_has_its_locks_is_named",
    ),
    Failure("verify", "no pgflow", "There is no schema pgflow in this database.", 1, "verify --dsn {none}"),
    Failure(
        "verify",
        "not upgraded yet",
        "This database is not upgraded: schema pgflow is ….",
        1,
        "verify --dsn {old}",
    ),
    Failure(
        "verify",
        "an invariant does not hold",
        "… of … invariants …",
        3,
        test="tests/verify/test_cmd_verify.py::test_violations_exit_3",
        stdout=True,
    ),
    Failure(
        "prune-helper", "no pgflow", 'There is no pgflow in database "…".', 1, "prune-helper --dsn {none}"
    ),
    Failure(
        "prune-helper",
        "--sql with --format",
        "--sql prints a script, which has no --format: give one of the two.",
        2,
        "prune-helper --sql --format json",
    ),
    Failure(
        "dirty-runs",
        "no protocol 2",
        "This database has no protocol 2: the revision dirty_runs is not applied.",
        1,
        "dirty-runs status --dsn {old}",
    ),
    Failure(
        "dirty-runs",
        "not exactly one run is named",
        "Give --run ID or --next, one of the two.",
        2,
        "dirty-runs reconcile",
    ),
    Failure(
        "dirty-runs",
        "the run is unknown",
        "outcome …unknown",
        3,
        "dirty-runs reconcile --dsn {new} --run 6f1c2f0e-8a50-4e5e-9a39-0b1f2b7d7c11",
        stdout=True,
    ),
)

_WORKER = "update pgflow.workers set stopped_at = now()"
_UPGRADE = "upgrade --dsn {old}"
_NEWER = "insert into pgflow_migrate.schema_migrations (name, checksum) values ('later', 'x')"
_UPGRADING = (
    Failure(
        "upgrade",
        "--sql with --dsn",
        "--sql prints a script: it goes with neither --dsn, --dry-run nor --format.",
        2,
        "upgrade --sql --dsn {old}",
    ),
    Failure(
        "upgrade",
        "--from without --sql",
        "--no-transaction and --from go with --sql.",
        2,
        "upgrade --from 0.15.1",
    ),
    Failure("upgrade", "no pgflow", "There is no schema pgflow in this database.", 1, "upgrade --dsn {none}"),
    Failure(
        "upgrade",
        "no release that is known",
        "Schema pgflow matches no known release; the closest is …, from which ….",
        1,
        test="tests/upgrade/test_adoption.py::test_a_database_that_matches_no_release_is_refused_with_the_differences",
    ),
    Failure(
        "upgrade",
        "catalogue and record contradict each other",
        "The database records revision …, but ….",
        1,
        _UPGRADE,
        before="alter table pgflow.runs rename column output to outputs",
        after="alter table pgflow.runs rename column outputs to output",
    ),
    Failure(
        "upgrade",
        "upgraded by a newer pgflow-migrate",
        'This database was upgraded by a newer pgflow-migrate: it is at revision "…".',
        1,
        _UPGRADE,
        before=_NEWER,
        after="delete from pgflow_migrate.schema_migrations where name = 'later'",
    ),
    Failure(
        "upgrade",
        "a revision's files have changed",
        "The files of revision … are not those that were applied to this database:"
        " the recorded checksum differs.",
        3,
        test="tests/upgrade/test_ledger.py::test_a_changed_checksum_is_refused_and_names_the_revision",
    ),
    Failure(
        "upgrade",
        "the preflight has findings",
        "The preflight refuses: ….",
        3,
        _UPGRADE,
        before="select pgflow.create_flow('bad__slug')",
        after="select pgflow.delete_flow_and_data('bad__slug')",
    ),
    Failure(
        "upgrade",
        "workers are at work",
        "The upgrade refuses: 1 worker is at work.",
        3,
        _UPGRADE,
        before="insert into pgflow.workers (worker_id, queue_name, function_name)"
        " values (gen_random_uuid(), 'q', 'f')",
        after=_WORKER,
    ),
    Failure(
        "upgrade",
        "the locks are not obtained",
        "The locks for the … were not obtained within … (…).",
        4,
        test="tests/cli/test_outputs.py::test_an_error_keeps_its_exit_code",
    ),
    Failure(
        "upgrade",
        "a deadlock",
        "A deadlock with another session ended the … (…).",
        4,
        test="tests/upgrade/test_waiting.py::test_a_deadlock_is_a_lock_that_was_not_obtained",
    ),
    Failure(
        "upgrade",
        "the role is not the owner",
        'Role "…" may not change schema pgflow, which is owned by "…" (…).',
        1,
        test="tests/upgrade/test_rights.py::test_a_role_without_rights_is_told_which_role_has_them",
    ),
    Failure(
        "upgrade",
        "the owner lacks a right",
        "The role lacks a right (…): ….",
        1,
        test="tests/upgrade/test_rights.py::test_an_owner_without_create_on_the_database_is_told_what_is_missing",
    ),
    Failure(
        "upgrade",
        "a standby",
        "The server is a hot standby, which only the primary can change.",
        1,
        test="tests/upgrade/test_standby.py::test_a_hot_standby_is_refused_and_the_primary_named",
    ),
    Failure(
        "upgrade",
        "the database is read-only by default",
        "default_transaction_read_only is on here (…): this database is not to be changed.",
        1,
        _UPGRADE,
        before="alter role current_user set default_transaction_read_only to on",
        after="set transaction_read_only to off; alter role current_user reset default_transaction_read_only",
    ),
    Failure(
        "upgrade",
        "the server ends it",
        "The server ended the … (…): ….",
        1,
        test="tests/upgrade/test_waiting.py::test_a_session_that_is_ended_by_the_administrator_changes_nothing",
    ),
    Failure(
        "upgrade",
        "it does not pass its own last look",
        "The … does not pass its own last look: ….",
        1,
        test="tests/verify/test_last_look.py::test_an_upgrade_that_is_spoilt_is_taken_back_whole",
    ),
    Failure(
        "upgrade",
        "Ctrl-C, SIGTERM or SIGHUP",
        "… ended the upgrade; what was running was cancelled and rolled back.",
        1,
        test="tests/upgrade/test_interrupt.py::test_a_signal_cancels_what_runs_and_rolls_back",
    ),
    Failure(
        "upgrade",
        "the answer to COMMIT is lost, for good",
        "The connection was lost during COMMIT, and whether it took effect could not be found out.",
        1,
        test="tests/faults/test_every_kind.py::test_a_commit_whose_answer_is_lost_has_taken_effect",
    ),
)

_FLOW = "from pgflow_migrate.worker import Flow\nf = Flow('f')\nf.step('a')(lambda x: x)\n"
_WORKING = (
    Failure(
        "worker", "--flow is no name", "'…' does not name a flow.", 2, "worker --flow orders --dsn {new}"
    ),
    Failure(
        "worker",
        "--flow twice",
        "Invalid value for '--flow': given 2 times. A worker works off one flow: start one for each.",
        2,
        "worker --flow a:b --flow c:d",
    ),
    Failure("worker", "no such module", "There is no module ….", 2, "worker --flow nope:f --dsn {new}"),
    Failure(
        "worker",
        "not in the module",
        "Module … has no attribute ….",
        2,
        "worker --flow flows:g --dsn {new}",
        files=(("flows.py", _FLOW),),
    ),
    Failure(
        "worker",
        "the module is broken",
        "Module … cannot be imported: …: … (…).",
        1,
        "worker --flow broken:f --dsn {new}",
        files=(("broken.py", "1 / 0\n"),),
    ),
    Failure(
        "worker",
        "the database is not upgraded",
        "This database's pgflow has no queue identity, which this worker needs.",
        3,
        "worker --flow flows:f --dsn {old}",
        files=(("flows.py", _FLOW),),
    ),
    Failure(
        "worker",
        "its function is paused",
        'Worker function "…" is paused since …',
        3,
        "worker --flow flows:f --dsn {new} --name idle",
        before="insert into pgflow.worker_functions (function_name, paused_at, pause_reason)"
        " values ('idle', now(), 'it met something')",
        after="delete from pgflow.worker_functions",
        files=(("flows.py", _FLOW),),
    ),
    Failure(
        "worker",
        "the database has another definition",
        'The database has another definition of flow "…".',
        3,
        test="tests/worker/test_handshake.py::test_another_definition_of_the_flow_is_refused_with_the_differences",
    ),
    Failure(
        "replay",
        "no such scenario",
        "No scenario is called '…'.",
        2,
        "replay --scenario nope",
    ),
    Failure("replay", "no such release", "There are no scenarios for release ….", 2, "replay --release 9.9"),
    Failure(
        "replay",
        "no scenarios in the folder",
        "There are no scenarios in ….",
        1,
        "replay --fixtures .",
    ),
    Failure(
        "replay",
        "--server twice",
        "Invalid value for '--server': given 2 times. Several servers are named with --matrix, each as --on.",
        2,
        "replay --server embedded:16 --server embedded:18",
    ),
    Failure("replay", "no such kind of server", "… is no kind of server.", 2, "replay --server nope"),
    Failure(
        "replay",
        "that version is not embedded",
        "PostgreSQL 15 is not installed as an embedded server.",
        1,
        "replay --server embedded:15",
    ),
    Failure("replay", "no server programs there", "… has no postgres.", 1, "replay --server binaries:."),
    Failure(
        "replay",
        "the role may not create databases",
        'Role "…" may not create databases.',
        1,
        test="tests/servers/test_external.py::test_a_role_that_may_not_create_databases_is_refused",
    ),
    Failure(
        "replay",
        "the server refuses something, or goes away",
        "The replay on … could not go on: ….",
        1,
        test="tests/replay/test_cmd_replay.py::test_what_a_server_refuses_is_told_by_each_server",
    ),
    Failure(
        "replay",
        "no Docker",
        "No Docker engine answers.",
        1,
        test="tests/servers/test_words.py::test_a_missing_docker_engine_is_one_sentence",
    ),
    Failure(
        "replay",
        "a scenario differs",
        "…",
        3,
        test="tests/replay/test_run.py::test_what_differs_is_told",
        stdout=True,
    ),
    Failure(
        "demo",
        "a promise is not kept",
        "… of … promises kept, in … s.",
        3,
        test="tests/replay/test_demo.py::test_a_broken_promise_is_told",
        stdout=True,
    ),
)

_STORE = (
    Failure(
        "work-center",
        "--backup with --no-backup",
        "Give --backup or --no-backup, not both.",
        2,
        "work-center upgrade {store} --no-backup --backup copy.db",
    ),
    Failure("work-center", "no such file", "There is no file ….", 1, "work-center status nope.db"),
    Failure("work-center", "a folder", "… is …, not a store.", 1, "work-center status ."),
    Failure(
        "work-center",
        "an empty file",
        "… is empty, not a store.",
        1,
        "work-center verify e",
        files=(("e", ""),),
    ),
    Failure(
        "work-center",
        "no SQLite database",
        "… is no SQLite database.",
        1,
        "work-center upgrade x.db",
        files=(("x.db", "some text\n" * 200),),
    ),
    Failure(
        "work-center",
        "another program's database",
        "… is no store of the Work Center program at version 22 or above: it has no table ….",
        1,
        test=f"{_FILES}::test_another_programs_database_is_refused",
    ),
    Failure(
        "work-center",
        "a damaged one",
        "… is damaged: ….",
        1,
        test=f"{_FILES}::test_a_damaged_store_is_refused",
    ),
    Failure("work-center", "no such step", 'There is no step "…".', 1, "work-center upgrade {store} --to 99"),
    Failure(
        "work-center",
        "the copy is there already",
        "… is there already.",
        1,
        "work-center upgrade {store} --backup copy.db",
        files=(("copy.db", "mine"),),
    ),
    Failure(
        "work-center",
        "a newer program has upgraded it",
        'The store was upgraded by a newer program: it records the step "…".',
        1,
        test="tests/work_center/test_looking.py::test_a_newer_store_is_not_verified",
    ),
    Failure(
        "work-center",
        "another edition of a step",
        "The store was upgraded by another edition of step …: the recorded checksum differs.",
        3,
        test="tests/work_center/test_ledger.py::test_a_changed_checksum_is_refused_by_name_before_anything",
    ),
    Failure(
        "work-center",
        "a step refuses a row",
        "…",
        3,
        test="tests/work_center/test_command.py::test_refusals_have_their_exit_codes_and_documents",
    ),
    Failure(
        "work-center",
        "others use it all the time",
        "… is locked by another connection, and was for all of … s.",
        4,
        test=f"{_FILES}::test_a_locked_store_is_the_fence",
    ),
    Failure(
        "work-center",
        "it may not be written",
        "… may not be written: … is read-only to us.",
        1,
        test=f"{_FILES}::test_a_store_that_may_not_be_written_is_refused_but_can_be_looked_at",
    ),
    Failure(
        "work-center",
        "Ctrl-C, SIGTERM or SIGHUP",
        "… ended the upgrade; what was running was rolled back.",
        1,
        test="tests/work_center/test_command.py::test_an_interrupt_takes_the_step_back_and_says_what_is_done",
    ),
)

_COPYING = (
    Failure(
        "export",
        "the file exists",
        "… exists.",
        2,
        "export copy --dsn {old}",
        files=(("copy", ""),),
    ),
    Failure(
        "export",
        "the file is a pipe or a device, with --force, too",
        "… is no regular file.",
        2,
        test="tests/export/test_export.py::test_what_is_no_regular_file_is_never_replaced",
    ),
    Failure(
        "export",
        "the file is a link to nothing, with --force, too",
        "… is a link that leads nowhere.",
        2,
        test="tests/export/test_export.py::test_what_is_no_regular_file_is_never_replaced",
    ),
    Failure("export", "the folder does not", "… cannot be written: …", 1, "export no/copy --dsn {old}"),
    Failure(
        "export",
        "the folder may not be entered",
        "… cannot be written: …",
        1,
        test="tests/export/test_export.py::test_a_folder_that_may_not_be_entered_is_told",
    ),
    Failure(
        "export",
        "a row is longer than a file can hold",
        "… takes … bytes in the file, where a line may have ….",
        1,
        test="tests/export/test_file.py::test_a_line_that_no_reader_would_take_is_not_written",
    ),
    Failure(
        "export", "no pgflow", "There is no schema pgflow in this database.", 1, "export copy --dsn {none}"
    ),
    Failure(
        "export",
        "rights on pgflow's tables are missing",
        'Role "…" may not read ….',
        1,
        test="tests/export/test_export.py::test_pgflow_itself_must_be_readable",
    ),
    Failure(
        "replay",
        "--from a file of another kind",
        "… is not an export of pgflow-migrate.",
        1,
        "replay --from copy",
        files=(("copy", "PGDMP"),),
    ),
    Failure(
        "replay",
        "--from a file of a newer format",
        "… has format …; this pgflow-migrate reads up to format ….",
        1,
        test="tests/replay/test_file.py::test_a_file_that_cannot_be_used_exits_1_before_a_server_is_asked",
    ),
    Failure(
        "replay",
        "--from a file of a newer release",
        "… is of release …, which this pgflow-migrate does not know.",
        1,
        test="tests/export/test_file.py::test_a_header_with_a_value_that_cannot_be_is_told",
    ),
    Failure(
        "replay",
        "--from a file with a row beyond this machine's memory",
        "… has a line … that is too long for this machine's memory.",
        1,
        test="tests/export/test_file.py::test_a_row_that_does_not_fit_into_memory_is_told",
    ),
    Failure(
        "replay",
        "--from a pipe",
        "… cannot be read: …",
        1,
        test="tests/export/test_file.py::test_a_pipe_is_not_waited_for",
    ),
    Failure(
        "replay",
        "--from a damaged file",
        "… is damaged at line ….",
        1,
        test="tests/export/test_file.py::test_a_line_that_does_not_fit_is_damage",
    ),
    Failure(
        "replay",
        "--from a file that was cut off",
        "… is cut off: it ends after line ….",
        1,
        test="tests/export/test_file.py::test_lines_that_are_missing_at_the_end_are_told_as_cut_off",
    ),
    Failure(
        "replay",
        "--from a file that was changed",
        "… does not fit pgflow …: …",
        1,
        test="tests/export/test_round_trip.py::"
        "test_a_file_that_was_changed_by_hand_is_refused_and_nothing_is_left",
    ),
    Failure(
        "replay",
        "--from a copy that is not a full one",
        "… is not a full copy: the role that exported could not read everything.",
        1,
        test="tests/replay/test_file.py::test_a_copy_that_is_of_no_release_or_not_full_is_told",
    ),
    Failure(
        "replay",
        "--from a copy of no known release",
        "… is of a database that matches no known release of pgflow; the closest is ….",
        1,
        test="tests/replay/test_file.py::test_a_copy_that_is_of_no_release_or_not_full_is_told",
    ),
    Failure(
        "replay",
        "--from a copy with findings",
        GAP,
        3,
        test="tests/replay/test_file.py::test_a_database_with_findings_is_blocked_and_exits_3",
        stdout=True,
    ),
    Failure(
        "replay",
        "--from with --release, --scenario or --fixtures",
        "--from goes with neither --release, --scenario nor --fixtures.",
        2,
        "replay --from copy --release 0.16.0",
        files=(("copy", ""),),
    ),
    Failure(
        "replay",
        "--matrix with --server",
        "The servers of a --matrix are named with --on.",
        2,
        "replay --matrix --server embedded:18",
    ),
    Failure(
        "replay",
        "--on without --matrix",
        "--on goes with --matrix; one server is named with --server.",
        2,
        "replay --on embedded:18",
    ),
)

FAILURES = (*_ANY, *_CONNECTING, *_LOOKING, *_UPGRADING, *_WORKING, *_COPYING, *_STORE)


def table() -> str:
    """The table as Markdown."""
    lines = ["| command | failure | what it says | exit code |", "| --- | --- | --- | --- |"]
    for row in FAILURES:
        says = row.says if row.says != GAP else "the result names it"
        lines.append(f"| {row.command} | {row.when} | {says.replace('|', '&#124;')} | {row.exit_code} |")
    return "".join(f"{line}\n" for line in lines)


def written(text: str) -> str:
    """``text`` with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
