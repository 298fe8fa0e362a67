-- Open applications whose declared income is unchecked, the most overstated first. What counts is the median month of the last
-- twelve, so that one month without pay, or with a holiday in it, doesn't decide; the whole history tells how steady the pay is.
with month as (
  select account_id, date_trunc('month', booked_on::timestamp)::date as month,
         coalesce(sum(amount) filter (where kind in ('salary', 'pension')), 0) as pay,
         -coalesce(sum(amount) filter (where amount < 0 and kind <> 'transfer'), 0) as spent
    from bank.transaction group by 1, 2
), income as (
  select m.account_id, count(*) as months, count(*) filter (where m.pay > 0) as months_with_pay,
         percentile_disc(0.5) within group (order by m.pay) filter (where m.month > s.business_day - interval '12 months') as usual_pay,
         percentile_disc(0.5) within group (order by m.spent) filter (where m.month > s.business_day - interval '12 months') as usual_spending,
         round(stddev_samp(m.pay), 2) as pay_varies_by
    from month m cross join bank.sample s group by 1
)
select l.loan_id as item, p.first_name || ' ' || p.last_name as borrower, p.city, l.amount, d.employer, d.monthly_net as declared, i.usual_pay,
       round(100 * (d.monthly_net - i.usual_pay) / d.monthly_net, 1) as overstated_percent, i.months_with_pay, i.months, i.pay_varies_by, i.usual_spending,
       d.submitted_at
  from bank.income_declaration d
  join bank.loan l using (loan_id)
  join bank.account a using (account_id)
  join bank.person p using (person_id)
  join income i using (account_id)
 where d.checked_at is null and l.status in ('submitted', 'in_review')
 order by overstated_percent desc, d.submitted_at, l.loan_id
