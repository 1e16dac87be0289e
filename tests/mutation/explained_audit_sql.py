"""Survivors among the mutants of the audit's SQL that nothing can kill, by the reason."""

# ruff: noqa: E501 - the lines are those of the SQL file

from __future__ import annotations

BY_REASON: dict[str, tuple[tuple[str, str], ...]] = {
    "batches of another size find the same": (
        ("queues_per_query constant integer := 500;", "queues_per_query constant integer := 501;"),
        ("queues_per_query constant integer := 500;", "queues_per_query constant integer := 499;"),
    ),
    "it sets what is set already": (
        (
            "if pg_size_bytes(caller_work_mem) < pg_size_bytes('64MB') then",
            "if pg_size_bytes(caller_work_mem) <= pg_size_bytes('64MB') then",
        ),
    ),
    "with less memory it finds the same, later": (
        (
            "if pg_size_bytes(caller_work_mem) < pg_size_bytes('64MB') then",
            "if pg_size_bytes(caller_work_mem) >= pg_size_bytes('64MB') then",
        ),
    ),
    "no column that is looked for is a system column or a dropped one": (
        ("where a.attnum > 0 and not a.attisdropped", "where a.attnum >= 0 and not a.attisdropped"),
        (
            "where n.nspname = 'pgmq' and a.attnum > 0 and not a.attisdropped",
            "where n.nspname = 'pgmq' and a.attnum >= 0 and not a.attisdropped",
        ),
        (
            "join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped",
            "join pg_attribute a on a.attrelid = r.oid and a.attnum >= 0 and not a.attisdropped",
        ),
        ("where a.attnum > 0 and not a.attisdropped", "where a.attnum > 0 or not a.attisdropped"),
    ),
    "no two rows are alike: each names what it is about": (("union all", "union"),),
    "an array begins at 1": (
        (
            "'samples', to_jsonb(differences[1:sample_limit]),",
            "'samples', to_jsonb(differences[0:sample_limit]),",
        ),
        (
            '(array_agg(s.name order by s.name collate "C"))[1:sample_limit] as samples,',
            '(array_agg(s.name order by s.name collate "C"))[0:sample_limit] as samples,',
        ),
        (
            "(array_remove(s.members, m.slug))[1:sample_limit] as samples,",
            "(array_remove(s.members, m.slug))[0:sample_limit] as samples,",
        ),
        (
            "'queue-metadata-ambiguous', s.flow_slug, s.queue_name, s.spelling_count, s.spellings[1:sample_limit],",
            "'queue-metadata-ambiguous', s.flow_slug, s.queue_name, s.spelling_count, s.spellings[0:sample_limit],",
        ),
        (
            "'queue-malformed', s.flow_slug, s.queue_name, s.defect_count, s.reasons[1:sample_limit],",
            "'queue-malformed', s.flow_slug, s.queue_name, s.defect_count, s.reasons[0:sample_limit],",
        ),
        (
            "(array_agg(i.message_id order by i.message_id))[1:sample_limit] as message_ids",
            "(array_agg(i.message_id order by i.message_id))[0:sample_limit] as message_ids",
        ),
        (
            "(array_agg(j.msg_id order by j.msg_id))[1:$2] as msg_ids,",
            "(array_agg(j.msg_id order by j.msg_id))[0:$2] as msg_ids,",
        ),
        (
            "(array_agg(distinct f.flow_slug order by f.flow_slug))[1:5] as other_flows",
            "(array_agg(distinct f.flow_slug order by f.flow_slug))[0:5] as other_flows",
        ),
    ),
    "a message that no task owns has one row": (
        (
            "bool_or(o.message_id is not null) as owned,",
            "bool_and(o.message_id is not null) as owned,",
        ),
    ),
    "there is but one value": (
        ("q.number, min(q.name) as name,", "q.number, max(q.name) as name,"),
        (
            "case when count(*) = 1 then min(q.flow_slug) end as flow_slug",
            "case when count(*) = 1 then max(q.flow_slug) end as flow_slug",
        ),
        (
            "min(case when o.message_id is null then m.message ->> 'flow_slug' end) as named_flow",
            "max(case when o.message_id is null then m.message ->> 'flow_slug' end) as named_flow",
        ),
        (
            "select lower(f.flow_slug) as name, case when count(*) = 1 then min(f.flow_slug) end as flow_slug",
            "select lower(f.flow_slug) as name, case when count(*) = 1 then max(f.flow_slug) end as flow_slug",
        ),
        (
            "select q.number, min(q.name) as name, case when count(*) = 1 then min(q.flow_slug) end as flow_slug",
            "select q.number, max(q.name) as name, case when count(*) = 1 then min(q.flow_slug) end as flow_slug",
        ),
        (
            "select q.number, min(q.name) as name, case when count(*) = 1 then min(q.flow_slug) end as flow_slug",
            "select q.number, min(q.name) as name, case when count(*) = 1 then max(q.flow_slug) end as flow_slug",
        ),
    ),
    "it is counted from 1, or null": (
        ("where s.defect_count > 0", "where s.defect_count >= 0"),
        (
            "where cardinality(p.missing) > 0 and (s.has_queue or s.has_archive or s.spelling_count > 0)",
            "where cardinality(p.missing) > 0 and (s.has_queue or s.has_archive or s.spelling_count >= 0)",
        ),
    ),
    "a shortcut: the query behind it finds nothing then": (
        ("if without_message_count > 0 then", "if without_message_count >= 0 then"),
        ("if in_other_flow_count > 0 then", "if in_other_flow_count >= 0 then"),
        (
            "select coalesce(jsonb_agg(t), '[]'), coalesce(sum(t.tasks), 0), coalesce(sum(t.without_message), 0),",
            "select coalesce(jsonb_agg(t), '[]'), coalesce(sum(t.tasks), 0), coalesce(sum(t.without_message), 1),",
        ),
        ("coalesce(sum(t.in_other_flow), 0)", "coalesce(sum(t.in_other_flow), 1)"),
    ),
    "a sequence of PGMQ's begins at 1, which is not behind 0": (
        (
            "join total t on t.queue_name = q.name and t.highest_message > 0",
            "join total t on t.queue_name = q.name and t.highest_message >= 0",
        ),
    ),
    "slugs are ASCII, where upper() and lower() hold the same texts apart": (
        (
            "dense_rank() over (order by lower(f.flow_slug)) as number",
            "dense_rank() over (order by upper(f.flow_slug)) as number",
        ),
    ),
    "in the C locale only ASCII has case": (
        (
            'group by s.code, s.flow_slug, lower(s.slug collate "C")',
            'group by s.code, s.flow_slug, upper(s.slug collate "C")',
        ),
    ),
    "two in one place keep the order in which they are listed": (
        (
            "select 1 as place, 'error' as thing, count(*) filter (where k.severity = 'error') as number",
            "select 2 as place, 'error' as thing, count(*) filter (where k.severity = 'error') as number",
        ),
        (
            "select 1 as place, 'error' as thing, count(*) filter (where k.severity = 'error') as number",
            "select 0 as place, 'error' as thing, count(*) filter (where k.severity = 'error') as number",
        ),
        (
            "select 2, 'warning', count(*) filter (where k.severity = 'warning')",
            "select 3, 'warning', count(*) filter (where k.severity = 'warning')",
        ),
        (
            "select 2, 'warning', count(*) filter (where k.severity = 'warning')",
            "select 1, 'warning', count(*) filter (where k.severity = 'warning')",
        ),
        (
            "(3, 'flow', flow_count), (4, 'step', step_count), (5, 'task', task_count),",
            "(4, 'flow', flow_count), (4, 'step', step_count), (5, 'task', task_count),",
        ),
        (
            "(3, 'flow', flow_count), (4, 'step', step_count), (5, 'task', task_count),",
            "(2, 'flow', flow_count), (4, 'step', step_count), (5, 'task', task_count),",
        ),
        (
            "(3, 'flow', flow_count), (4, 'step', step_count), (5, 'task', task_count),",
            "(3, 'flow', flow_count), (5, 'step', step_count), (5, 'task', task_count),",
        ),
        (
            "(3, 'flow', flow_count), (4, 'step', step_count), (5, 'task', task_count),",
            "(3, 'flow', flow_count), (3, 'step', step_count), (5, 'task', task_count),",
        ),
        (
            "(3, 'flow', flow_count), (4, 'step', step_count), (5, 'task', task_count),",
            "(3, 'flow', flow_count), (4, 'step', step_count), (6, 'task', task_count),",
        ),
        (
            "(3, 'flow', flow_count), (4, 'step', step_count), (5, 'task', task_count),",
            "(3, 'flow', flow_count), (4, 'step', step_count), (4, 'task', task_count),",
        ),
        ("(6, 'message', message_count),", "(7, 'message', message_count),"),
        ("(6, 'message', message_count),", "(5, 'message', message_count),"),
        (
            "(7, 'queue', cardinality(readable_queues))",
            "(8, 'queue', cardinality(readable_queues))",
        ),
        (
            "(7, 'queue', cardinality(readable_queues))",
            "(6, 'queue', cardinality(readable_queues))",
        ),
    ),
}
