-- Claims: made only of an eligible task, by its own address; ended once; kept until deletion is safe.

create trigger claim_is_evidence
  before insert or update or delete on pgflow.task_claims
  for each row execute function pgflow._v2_guard_claim();

create trigger claims_are_not_truncated
  before truncate on pgflow.task_claims
  for each statement execute function pgflow._v2_guard_claim();
