-- The sample bank. Keys, foreign keys and indexes come after the rows: see finish.go.
create schema bank;
comment on schema bank is 'A made-up bank: people, accounts, loans and what borrowers handed in. Every amount is in euro.';

create table bank.sample (edition int not null, loans int not null, business_day date not null);
comment on table bank.sample is 'One row that identifies the sample bank. It commits together with everything else.';
comment on column bank.sample.business_day is 'The bank''s today: the last day on which lines were booked.';

create table bank.person (
  person_id int not null, first_name text not null, last_name text not null, birth_date date not null,
  street text not null, city text not null);

create table bank.account (
  account_id int not null, person_id int not null, iban text not null, opened date not null);
comment on column bank.account.iban is 'Valid check digits under the country code XB, which no country has.';

create table bank.loan (
  loan_id int not null, account_id int not null, amount numeric(12,2) not null, rate numeric(5,2) not null,
  purpose text not null, term_months int not null, submitted_at timestamptz not null, decided_at timestamptz,
  status text not null check (status in ('submitted', 'in_review', 'active', 'repaid', 'rejected', 'withdrawn')));
comment on table bank.loan is 'An application and, once granted, the loan. The borrower is the owner of the account.';
comment on column bank.loan.rate is 'Interest, percent a year.';
comment on column bank.loan.status is 'submitted and in_review are open applications.';

create table bank.transaction (
  transaction_id bigint not null, account_id int not null, booked_on date not null, kind text not null,
  amount numeric(12,2) not null, balance numeric(12,2) not null, counterparty text not null);
comment on table bank.transaction is 'Every line of every account, in the order of booking.';
comment on column bank.transaction.amount is 'Positive when money came in.';
comment on column bank.transaction.balance is 'The account''s balance after this line: the sum of all its lines so far.';

create table bank.statement (
  statement_id int not null, account_id int not null, month date not null,
  opening_balance numeric(12,2), closing_balance numeric(12,2), submitted_at timestamptz, verified_at timestamptz,
  check ((submitted_at is null) = (opening_balance is null) and (submitted_at is null) = (closing_balance is null)),
  check (verified_at is null or verified_at >= submitted_at));
comment on table bank.statement is 'The monthly statements that a borrower owes the bank, exactly as typed, right or wrong.';
comment on column bank.statement.submitted_at is 'Null: still missing.';
comment on column bank.statement.verified_at is 'Null: nobody has compared it with the account yet.';

create table bank.income_declaration (
  loan_id int not null, employer text not null, monthly_net numeric(12,2) not null,
  submitted_at timestamptz not null, checked_at timestamptz);
comment on table bank.income_declaration is 'The income that the borrower declares, one row per loan.';

create table bank.instalment (
  loan_id int not null, number int not null, due_on date not null, amount numeric(12,2) not null);
comment on table bank.instalment is 'The payment schedule of granted loans. Payments are the account''s lines of kind loan_payment.';
