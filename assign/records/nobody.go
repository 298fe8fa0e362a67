package records

// SelectNobody returns, of each task with items that need what nobody known has, its id and name, how many items, and what most of them
// need: of an inbox those that are ready, up to 1,000 of each class, and otherwise those that the last run found.
//
// Known are users who have logged in, have skills, or are among the last who asked, unless they are blocked, with their last groups.
// Managers don't count: they may have every item, and are not there to work on them. Users are read only where items need anything.
const SelectNobody = `
with needy as materialized (
  select s.task_id, s.name, v.query is null as inbox, n.class, array(select jsonb_array_elements_text(n.needed->'needs')) as needs, coalesce((n.needed->>'items')::bigint, 0) as items
  from getwork.task_state s
  join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
  left join getwork.run u on u.id = s.last_run and v.query is not null
  cross join lateral jsonb_array_elements(case when v.query is null then s.needs else u.needs end) with ordinality n (needed, class)
  where s.deleted_at is null and n.needed->'needs' <> '[]'
), known as materialized (
  select distinct coalesce(p.groups, '{}') || coalesce(q.groups, '{}') || coalesce(k.skills, '{}') as has
  from getwork.principal p
  full join getwork.skill k on k.user_name = p.name
  full join (
    select distinct on (r.user_name) r.user_name, r.groups
    from (select user_name, groups, id from getwork.work_requested order by id desc limit 10000) r
    order by r.user_name, r.id desc
  ) q on q.user_name = coalesce(p.name, k.user_name)
  where p.blocked_at is null and p.role is distinct from 'manager'
)
select f.task_id, f.name, sum(f.items)::bigint, (array_agg(array_to_string(f.needs, ', ') order by f.items desc, f.class))[1]
from (
  select n.task_id, n.name, n.class, n.needs, case when n.inbox then (
    select count(*) from (
      select from getwork.item i
      where i.task_id = n.task_id and i.class = n.class and i.due_at is null and i.done_at is null and (i.needs_until is null or i.needs_until > clock_timestamp())
      limit 1000) c) else n.items end as items
  from needy n
  where not exists (select from known k where k.has @> n.needs)
) f
where f.items > 0
group by 1, 2`
