-- is_valid_slug(slug): may this name a flow or a step?
-- Why here and not in functions/: checks of the tables call it.
-- Core behaviour: utilities, is_valid_slug.

create function pgflow.is_valid_slug(slug text)
returns boolean
language plpgsql
immutable
set search_path = ''
as $function$
begin
  -- [A-Za-z] would follow the collation; "C" keeps it to ASCII.
  return coalesce(
    slug <> 'run'
      and length(slug) <= 128
      and (slug collate "C") ~ '^[A-Za-z_][A-Za-z0-9_]*$',
    false
  );
end
$function$;

comment on function pgflow.is_valid_slug(text) is
  'True for 1 to 128 ASCII letters, digits and underscores, no digit first, and not the reserved word run; '
  'never null.';
