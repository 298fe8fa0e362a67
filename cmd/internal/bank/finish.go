package bank

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// finishing makes the filled tables usable. Keys and indexes are built once over the finished rows, several times
// faster than row by row. The load includes statistics: without them the first ranking queries would be planned as if
// the tables were empty.
var finishing = []struct{ step, sql string }{
	{"index transactions", `
		set local maintenance_work_mem = '192MB';
		alter table bank.transaction add primary key (transaction_id);
		create index transaction_account on bank.transaction (account_id, booked_on)`},
	{"index the rest", `
		alter table bank.person add primary key (person_id);
		alter table bank.account add primary key (account_id), add unique (iban);
		alter table bank.loan add primary key (loan_id), add unique (account_id);
		alter table bank.statement add primary key (statement_id), add unique (account_id, month);
		alter table bank.income_declaration add primary key (loan_id);
		alter table bank.instalment add primary key (loan_id, number);
		create index account_person on bank.account (person_id);
		create index loan_open on bank.loan (submitted_at) where status in ('submitted', 'in_review');
		create index statement_waiting on bank.statement (account_id) where submitted_at is not null and verified_at is null`},
	{"check references", `
		alter table bank.account add foreign key (person_id) references bank.person;
		alter table bank.loan add foreign key (account_id) references bank.account;
		alter table bank.transaction add foreign key (account_id) references bank.account;
		alter table bank.statement add foreign key (account_id) references bank.account;
		alter table bank.income_declaration add foreign key (loan_id) references bank.loan;
		alter table bank.instalment add foreign key (loan_id) references bank.loan`},
	{"analyze", `
		analyze bank.person, bank.account, bank.loan, bank.transaction, bank.statement, bank.income_declaration, bank.instalment`},
}

func finish(ctx context.Context, tx pgx.Tx, progress func(step string, done, total int64)) error {
	for _, f := range finishing {
		progress(f.step, 0, 1)
		if _, err := tx.Exec(ctx, f.sql); err != nil {
			return fmt.Errorf("%s: %w", f.step, err)
		}
		progress(f.step, 1, 1)
	}
	return nil
}
