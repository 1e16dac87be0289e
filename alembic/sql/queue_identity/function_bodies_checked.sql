-- Check function bodies again: later revisions run in this same transaction.

set local check_function_bodies to default;
