-- One text for all jsonb values that are equal: jsonb already sorts keys and drops white space, but keeps the trailing
-- zeros of numbers (1.0 = 1). Outside of strings the text of a jsonb has digits in numbers alone, and no exponents.
-- Works on tokens of the text, not by recursion: depth and size of the value cost no stack.
create or replace function pgflow._canonical_json(p_value jsonb)
returns text
language sql
immutable
parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case
    when p_value::text !~ '[.][0-9]*0([^0-9]|$)' then p_value::text
    else (
      select string_agg(
        case
          when token.part[1] like '"%' then token.part[1]
          else regexp_replace(
            -- chr(92) is the backslash, whose meaning in a literal depends on a setting.
            regexp_replace(token.part[1], '([.][0-9]*[1-9])0+(?![0-9])', chr(92) || '1', 'g'),
            '[.]0+(?![0-9])', '', 'g'
          )
        end,
        '' order by token.place
      )
      from regexp_matches(
        p_value::text, replace('"(?:[^"%]|%.)*"|[^"]+', '%', repeat(chr(92), 2)), 'g'
      ) with ordinality as token (part, place)
    )
  end;
$$;

comment on function pgflow._canonical_json(jsonb) is
  'Internal. The canonical text of a JSON value: that of jsonb (keys by length, then bytes; separators ", " and ": "), '
  'numbers without trailing zeros after the point. Equal values, equal texts. SQL NULL for SQL NULL.';
