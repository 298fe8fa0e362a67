-- Web hooks are told of runs that were lost, too: their query could not be brought to an end. It takes no time, whatever the size.
-- Older nodes go on beside it, and what they write is recorded, too.

create or replace trigger run_failed after update of state on getwork.run for each row
  when (old.state = 'running' and new.state in ('failed', 'lost')) execute function getwork.tell_hooks();

---- create above / drop below ----

create or replace trigger run_failed after update of state on getwork.run for each row
  when (old.state = 'running' and new.state = 'failed') execute function getwork.tell_hooks();
