-- Purpose: which claims `c` are open, as somebody assumes who names them as `u`, and nobody took these tasks
-- out.
-- Inputs: $1 the namespace, $4 tasks; `u` has requests and when their leases must end, if that matters.
c.ns = $1
AND c.request = u.request
AND c.until IS NOT NULL
AND (u.until IS NULL OR c.until = u.until)
AND NOT c.gone && $4
