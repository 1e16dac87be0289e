-- Drop the form with allow_data_loss: beside the new one, a call with two arguments would be ambiguous.
-- Core behaviour: 0.16.0 relative to 0.15.1.

drop function pgflow.ensure_flow_compiled(text, jsonb, boolean);
