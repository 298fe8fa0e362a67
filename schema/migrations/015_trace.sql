-- Requests record the spans of their clicks, so that traces cross nodes. It takes no time, whatever the size. Older nodes go on beside it:
-- they record no span, and what they answer and push has none.

alter table getwork.work_requested
  add column traceparent text;
comment on column getwork.work_requested.traceparent is 'The span of its click (W3C Trace Context), so that nodes that answer and push it continue its trace. Null: tracing was off, or the click not sampled.';

---- create above / drop below ----

alter table getwork.work_requested drop column traceparent;
