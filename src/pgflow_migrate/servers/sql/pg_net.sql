-- Stand-in for pg_net: requests stay in the queue and are never sent, so that tests can look at them.
-- Signatures, defaults and the check of the content type are pg_net's.

create schema net;

create table net.http_request_queue (
  id bigserial primary key,
  method text not null,
  url text not null,
  headers jsonb,
  body bytea,
  timeout_milliseconds integer not null
);

create table net._http_response (
  id bigint,
  status_code integer,
  content_type text,
  headers jsonb,
  content text,
  timed_out boolean,
  error_msg text,
  created timestamptz not null default now()
);

create function net._urlencode_string(string text)
returns text
language sql
immutable strict
as $$
  select coalesce(
    string_agg(
      case
        when c.letter ~ '^[A-Za-z0-9_.~-]$' then c.letter
        else upper(regexp_replace(encode(convert_to(c.letter, 'UTF8'), 'hex'), '(..)', '%\1', 'g'))
      end,
      '' order by c.n
    ),
    ''
  )
  from regexp_split_to_table($1, '') with ordinality as c(letter, n);
$$;

create function net._url_with_params(url text, params jsonb)
returns text
language sql
immutable
as $$
  select $1 || coalesce(
    case when position('?' in $1) > 0 then '&' else '?' end
      || string_agg(net._urlencode_string(p.key) || '=' || net._urlencode_string(p.value), '&' order by p.key),
    ''
  )
  from jsonb_each_text($2) as p;
$$;

create function net.http_get(
  url text,
  params jsonb default '{}',
  headers jsonb default '{}',
  timeout_milliseconds integer default 5000
)
returns bigint
language sql
as $$
  insert into net.http_request_queue (method, url, headers, timeout_milliseconds)
  values ('GET', net._url_with_params($1, $2), $3, $4)
  returning id;
$$;

create function net.http_post(
  url text,
  body jsonb default '{}',
  params jsonb default '{}',
  headers jsonb default '{"Content-Type": "application/json"}',
  timeout_milliseconds integer default 5000
)
returns bigint
language plpgsql
as $$
declare
  v_content_type text;
  v_id bigint;
begin
  select h.value into v_content_type
  from jsonb_each_text(coalesce($4, '{}')) as h
  where lower(h.key) = 'content-type'
  limit 1;

  if v_content_type is null then
    $4 := coalesce($4, '{}') || '{"Content-Type": "application/json"}';
  elsif v_content_type <> 'application/json' then
    raise exception 'Content-Type header must be "application/json"';
  end if;

  insert into net.http_request_queue (method, url, headers, body, timeout_milliseconds)
  values ('POST', net._url_with_params($1, $3), $4, convert_to($2::text, 'UTF8'), $5)
  returning id into v_id;
  return v_id;
end
$$;

grant usage on schema net to public;
grant select, insert, update, delete on net.http_request_queue, net._http_response to public;
grant usage on sequence net.http_request_queue_id_seq to public;
