package doctor

import "context"

// hooksNow says whether events are recorded as long as there is a hook that wants them.
const hooksNow = `
select (select count(*) from getwork.hook),
  (select count(*) from pg_trigger t where t.tgrelid = 'getwork.work'::regclass and t.tgname in ('work_assigned', 'work_closed') and t.tgenabled <> 'D'),
  has_function_privilege('getwork.switch_hooks()', 'execute')`

type hookNow struct {
	Hooks, Triggers int
	May             bool
}

func lookAtWebhooks(ctx context.Context, x *examination) (found []Finding, err error) {
	all, err := rowsOf[hookNow](ctx, x.db, x.name.SQL(hooksNow))
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		if h.Hooks > 0 && h.Triggers < 2 {
			found = append(found, failed("as the owner, execute select "+x.name.SQL("getwork.switch_hooks()"), "there are web hooks, and the triggers that record their events are switched off"))
		}
		if !h.May {
			found = append(found, warned("as the owner, execute grant execute on function "+x.name.SQL("getwork.switch_hooks()")+" to "+x.db.Config().User, "the login %s can make no web hooks", x.db.Config().User))
		}
		if len(found) == 0 {
			return orFine(nil, "%s; their events are recorded", counted(h.Hooks, "web hook"))
		}
	}
	return found, nil
}
