/** A task's card at the desk. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { live } from '../../lib/lit-html/directives/live.js';
import { about, clock, counts, elapsed, fully, mayCome, outcome, yours } from '../../words.js';
import { hint } from './card.js';

const choices = 5; // larger numbers are typed
const patience = '1h'; // how long a lingering request waits

/** How many items a user who holds so many may ask for now: at least 1, so that the server can say why there is none. */
export const mayAsk = ({ max_request: most, max_open: limit }, held) => (limit ? Math.max(1, Math.min(most, limit - held)) : most);

/**
 * card as an element of the list. view: {now, number, held, putOff, why}: the time; its position in the list, from 1; how many
 * of its items the user holds; which the user returned; and whether the user may read why a query failed. acts: {ask(name, count, options), cancel(name)}.
 */
export function panel(card, view, acts) {
  const { task, ended } = card;
  const title = task.title || task.name;
  return html`<li class="card task" aria-label=${title}>
    <h3 dir="auto">${title}</h3>
    ${task.description ? html`<p class="quiet description" dir="auto">${task.description}</p>` : nothing}
    <p class="quiet counts">${task.paused ? html`<span class="badge" data-kind="warn">paused</span>` : nothing} ${counts(task)}</p>
    ${task.max_open ? html`<p class="quiet">You hold ${view.held} of at most ${task.max_open}.</p>` : nothing}
    ${card.request ? pending(card, view.now, acts) : form(card, view, acts)}
    <p class="ended" dir="auto" role=${ended?.state === 'assigned' ? nothing : 'status'}>${
      ended && !card.busy ? endedText(card, view) : ''}</p>
    ${ended?.error && view.why && !card.busy ? html`<pre class="cause" dir="auto">${ended.error}</pre>` : nothing}
    ${ended && mayCome(ended) && !card.busy ? html`<button class="linger" type="button"
      @click=${() => acts.ask(task.name, ended.wanted, { linger: patience })}>Wait for it, up to ${patience.replace('h', ' h')}</button>` : nothing}
    <p class="error" role="alert" dir="auto">${card.error}</p>
  </li>`;
}

function endedText({ ended, task }, { putOff, held }) {
  const text = outcome(ended, task.max_open, held);
  const mine = ended.state === 'none' && ['all_held', 'rules', 'no_match'].includes(ended.reason) && putOff.length;
  return mine ? `${text} ${yours(putOff)}` : text;
}

function form(card, { number, held }, acts) {
  const { task, busy } = card;
  const most = mayAsk(task, held);
  const title = task.title || task.name;
  const submit = (e) => {
    e.preventDefault();
    acts.ask(task.name, card.count);
  };
  return html`<form @submit=${submit}>
    ${most > choices ? typed(card, most) : chosen(card, most)}
    <button class="primary" type="submit" aria-disabled=${busy} aria-label="Get Work: ${title}"
      aria-keyshortcuts=${number < 10 ? `g ${number}` : nothing}>Get Work${number < 10 ? hint(`g ${number}`) : nothing}</button>
  </form>`;
}

function chosen(card, most) {
  const { name } = card.task;
  const choice = (n) => html`<label><input type="radio" name="count-${name}" value=${n} .checked=${live(Math.min(card.count, most) === n)}
    @change=${() => { card.count = n; }}><span>${n}</span></label>`;
  return html`<fieldset class="choose"><legend>How many</legend><div class="choices">${
    Array.from({ length: most }, (_, i) => choice(i + 1))}</div></fieldset>`;
}

function typed(card, most) {
  return html`<label class="how-many">How many, up to ${most} <input type="number" min="1" max=${most} required
    .value=${live(String(Math.min(card.count, most)))} @input=${(e) => { card.count = e.target.valueAsNumber || 1; }}></label>`;
}

function pending(card, now, acts) {
  const { request, task, since, due } = card;
  const asked = new Date(since);
  const left = due === null ? '' : about(due - now);
  return html`<div class="pending">
    ${request.linger_until && due === null ? nothing : bar(card.bar(now), left)}
    <p class="asked">Asked for ${request.wanted} at <time datetime=${request.created_at}
      title=${fully(asked)}>${asked.toLocaleTimeString()}</time>, ${elapsed(now - since)} ago.</p>
    <p class="phase"><span role="status">${phase(card)}</span> <span class="clock">${card.run?.since ? elapsed(now - card.run.since) : ''}</span></p>
    <p class="left">${left}</p>
    <button type="button" aria-label="Cancel the request: ${task.title || task.name}" aria-disabled=${card.busy}
      @click=${() => acts.cancel(task.name)}>Cancel</button>
  </div>`;
}

function phase({ task, request: { position, linger_until: until }, run, due }) {
  if (task.paused) return 'A manager has paused this task; your request waits until it goes on.';
  if (run?.since) return 'The query is running:';
  if (run?.phase === 'finished') return 'The query is done; handing out.';
  if (position > 1) return `Waiting; ${position - 1} asked before you.`;
  return until && due === null ? `Waiting until ${clock(until)} for something to come.` : 'Waiting for the result.';
}

/** done: from 0 to 1; null: unknown. */
function bar(done, left) {
  return html`<progress class="progress" max="1" value=${done === null ? nothing : done.toFixed(3)}
    aria-label="How far it is" aria-valuetext=${left || 'Nobody knows how long it takes'}></progress>`;
}
