-- calculate_retry_delay(base_delay, attempts_count): seconds to wait before the next attempt.
-- Why numeric throughout: zero times a huge power is zero, where a float would overflow first.
-- Core behaviour: utilities, calculate_retry_delay.

create function pgflow.calculate_retry_delay(base_delay numeric, attempts_count integer)
returns integer
language sql
immutable
parallel safe
set search_path = ''
as $function$
  select floor(base_delay * power(2::numeric, attempts_count))::integer
$function$;

comment on function pgflow.calculate_retry_delay(numeric, integer) is
  'floor(base_delay * 2^attempts_count) in seconds, without a cap; 22003 beyond the range of integer.';
