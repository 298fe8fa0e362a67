-- Granted loans behind their schedule, the longest overdue first. What was paid is found in the account's lines and set against the
-- instalments in the order in which they fell due: the first one that it doesn't cover tells since when the loan is behind.
with month as (
  select account_id, date_trunc('month', booked_on::timestamp)::date as month, sum(amount) as change,
         -coalesce(sum(amount) filter (where kind = 'loan_payment'), 0) as paid,
         sum(amount) filter (where kind not in ('loan', 'loan_payment', 'transfer')) as left_over,
         max(booked_on) filter (where kind = 'loan_payment') as last_payment
    from bank.transaction group by 1, 2
), booked as (
  select account_id, sum(change) as balance, sum(paid) as paid, percentile_disc(0.5) within group (order by left_over) as usually_left,
         max(last_payment) as last_payment
    from month group by 1
), due as (
  select loan_id, due_on, amount, sum(amount) over (partition by loan_id order by number) as so_far
    from bank.instalment
   where due_on <= (select business_day from bank.sample)
), behind as (
  select l.loan_id, max(d.so_far) - min(b.paid) as overdue, min(d.due_on) as since, count(*) as instalments
    from due d join bank.loan l using (loan_id) join booked b using (account_id)
   where d.so_far > b.paid
   group by 1
)
select l.loan_id as item, p.first_name || ' ' || p.last_name as borrower, p.city, l.amount, l.purpose, x.overdue, x.instalments,
       s.business_day - x.since as days_overdue, x.since as overdue_since, b.last_payment, b.balance, b.usually_left
  from behind x
  join bank.loan l using (loan_id)
  join bank.account a using (account_id)
  join bank.person p using (person_id)
  join booked b using (account_id)
  cross join bank.sample s
 where l.status = 'active'
 order by days_overdue desc, x.overdue desc, l.loan_id
