/** A task's row at the desk. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { live } from '../../lib/lit-html/directives/live.js';
import { t } from '../../lang.js';
import { clock } from '../../words.js';
import { hint } from './card.js';
import { coming, counts, mayCome, outcome, things, yours } from './words.js';

const choices = 5; // larger numbers are typed
const patience = '1h'; // how long a lingering request waits

/** How many items a user who holds so many may ask for now: at least 1, so that the server can say why there is none. */
export const mayAsk = ({ max_request: most, max_open: limit }, held) => (limit ? Math.max(1, Math.min(most, limit - held)) : most);

/**
 * card as an element of the list: its name, what is there for the user, and one button; the rest on demand. view: {now, number, held,
 * putOff, why}: the time; its position in the list, from 1; how many of its items the user holds; which the user returned; and whether the
 * user may read why a query failed. acts: {ask(name, count, options)}.
 */
export function panel(card, view, acts) {
  const { task, ended } = card;
  const title = task.title || task.name;
  const unfold = (e) => { card.open = !e.currentTarget.parentElement.open; };
  return html`<li class="task" aria-label=${title}>
    <form @submit=${submit(card, acts)}>
      <details .open=${live(card.open)} @toggle=${(e) => { card.open = e.target.open; }}>
        <summary @click=${unfold}><h3 dir="auto">${title}</h3>
          <span class="quiet there">${task.paused ? html`<span class="badge" data-kind="warn">${t`paused`}</span>` : nothing} ${ready(card, view)}</span></summary>
        ${task.description ? html`<p class="quiet description" dir="auto">${task.description}</p>` : nothing}
        ${number(card, view)}
        <p class="quiet counts">${counts(task)}</p>
      </details>
      ${button(card, view)}
    </form>
    <p class="ended" dir="auto" role=${ended?.state === 'assigned' ? nothing : 'status'}>${
      ended && !card.busy ? endedText(card, view) : ''}</p>
    ${ended?.state === 'failed' && !card.busy ? failure(card, view) : nothing}
    ${ended?.stale && !card.busy ? html`<p class="quiet aged">${t`The list was made at ${html`<time datetime=${ended.ranked_at}>${
      clock(ended.ranked_at)}</time>`}, so it is older than usual. A newer one is on its way.`}</p>` : nothing}
    ${ended && mayCome(ended) && !card.busy ? html`<button class="linger" type="button"
      @click=${() => acts.ask(task.name, ended.wanted, { linger: patience })}>${t`Wait for it, up to ${patience.replace('h', ' h')}`}</button>` : nothing}
    <p class="error" role="alert" dir="auto">${card.error}</p>
  </li>`;
}

/** What is there for the user, in a few words. */
function ready(card, { held, now }) {
  const { request, due, task: { shelf, max_open: most, display, query } } = card;
  if (request) return coming(request.wanted, display, due === null ? null : due - now);
  if (most) return t`You hold ${held} of at most ${most}.`;
  if (shelf) return t`${things(shelf, display)} ready at once`;
  return query === null ? t`nothing in it now` : '';
}

function failure({ ended, task }, { why }) {
  return html`<details class="why-failed"><summary>${t`Details`}</summary>
    <p class="quiet">${t`The task’s query failed at ${clock(ended.completed_at ?? ended.created_at)}.`} ${why
      ? html`<a href="/tasks/${encodeURIComponent(task.name)}">${t`Look at the task`}</a>` : t`Managers see why on the floor.`}</p>
    ${ended.error && why ? html`<pre class="cause" dir="auto">${ended.error}</pre>` : nothing}</details>`;
}

const submit = (card, acts) => (e) => {
  e.preventDefault();
  if (!card.request) acts.ask(card.task.name, card.count);
};

function button({ task, busy, request }, { number: n }) {
  const title = task.title || task.name;
  return html`<button class="primary" type="submit" aria-disabled=${busy || Boolean(request)} aria-label=${t`Get Work: ${title}`}
    aria-keyshortcuts=${n < 10 ? `g ${n}` : nothing}>${t`Get Work`}${n < 10 ? hint(`g ${n}`) : nothing}</button>`;
}

function number(card, { held }) {
  const most = mayAsk(card.task, held);
  return most > choices ? typed(card, most) : chosen(card, most);
}

function endedText({ ended, task, full }, { putOff, held }) {
  const text = outcome(ended, task, held, full);
  const mine = ended.state === 'none' && ['all_held', 'rules', 'no_match'].includes(ended.reason) && putOff.length;
  return mine ? `${text} ${yours(putOff)}` : text;
}

function chosen(card, most) {
  const { name } = card.task;
  const choice = (n) => html`<label><input type="radio" name="count-${name}" value=${n} .checked=${live(Math.min(card.count, most) === n)}
    @change=${() => { card.count = n; }}><span>${n}</span></label>`;
  return html`<fieldset class="choose"><legend>${t`How many`}</legend><div class="choices">${
    Array.from({ length: most }, (_, i) => choice(i + 1))}</div></fieldset>`;
}

function typed(card, most) {
  return html`<label class="how-many">${t`How many, up to ${most}`} <input type="number" min="1" max=${most} required
    .value=${live(String(Math.min(card.count, most)))} @input=${(e) => { card.count = e.target.valueAsNumber || 1; }}></label>`;
}
