-- The same loans as verify-bank-account.sql, the way such queries grow: for every line of every account, the balance after it is
-- added up anew from all lines up to it, so that the work is the square of an account's history.
with line as (
  select t.account_id, t.booked_on, t.amount, t.balance as stored, t.counterparty, b.balance, b.n
    from bank.transaction t
    cross join lateral (
      select sum(e.amount) as balance, count(*) as n
        from bank.transaction e
       where e.account_id = t.account_id and e.booked_on <= t.booked_on and (e.booked_on < t.booked_on or e.transaction_id <= t.transaction_id)
    ) b
), month as (
  select account_id, date_trunc('month', booked_on::timestamp)::date as month, min(n) as first_line, max(n) as last_line,
         (array_agg(balance - amount order by n))[1] as opening, (array_agg(balance order by n desc))[1] as closing,
         min(balance) as lowest, percentile_disc(0.5) within group (order by balance) as usual, count(*) filter (where balance <> stored) as breaks,
         count(distinct counterparty collate "C") as parties
    from line group by 1, 2
), account as (
  select account_id, sum(last_line - first_line + 1) as lines, min(lowest) as lowest, sum(breaks) as breaks from month group by 1
), waiting as (
  select s.account_id, min(s.submitted_at) as submitted_at, count(*) as statements,
         count(*) filter (where s.opening_balance <> m.opening or s.closing_balance <> m.closing) as wrong,
         max(greatest(abs(s.opening_balance - m.opening), abs(s.closing_balance - m.closing))) as worst_gap,
         (array_agg(s.opening_balance order by s.month))[1] as submitted_opening, (array_agg(m.opening order by s.month))[1] as computed_opening,
         round(avg(m.usual), 2) as usual, round(avg(m.parties), 1) as parties
    from bank.statement s join month m using (account_id, month)
   where s.submitted_at is not null and s.verified_at is null
   group by 1
)
select l.loan_id as item, p.first_name || ' ' || p.last_name as borrower, p.city, l.amount, l.purpose, a.iban, w.submitted_at, w.statements, w.wrong,
       w.worst_gap, w.submitted_opening, w.computed_opening, w.usual as usual_balance, h.lowest as lowest_balance, h.lines,
       w.parties as parties_a_month, h.breaks as ledger_breaks
  from bank.loan l
  join bank.account a using (account_id)
  join bank.person p using (person_id)
  join waiting w using (account_id)
  join account h using (account_id)
 where l.status in ('submitted', 'in_review')
 order by w.submitted_at, l.loan_id
