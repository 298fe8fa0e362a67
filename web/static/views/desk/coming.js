/** What is on its way to the pipeline: the user's requests that wait, with their progress. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { locale, t } from '../../lang.js';
import { clock, elapsed, fully } from '../../words.js';
import { about, coming, things } from './words.js';

/** A pending request's element. card: of its task; acts: {cancel(name)}. */
export function pending(card, now, acts) {
  const { request, task, since, due } = card;
  const asked = new Date(since);
  const left = due === null ? null : due - now;
  const lingers = request.linger_until && due === null;
  const title = task?.title || (request.tasks ? t`any of your tasks` : request.task);
  return html`<li class="card pending">
    <p class="coming"><b>${lingers ? t`Waiting for ${things(request.wanted, task?.display)}` : coming(request.wanted, task?.display, left)}</b>
      <span class="quiet" dir="auto">${title}</span></p>
    ${lingers ? nothing : bar(card.bar(now), left === null ? '' : about(left))}
    <p class="phase"><span role="status">${phase(card)}</span> <span class="clock">${card.run?.since ? elapsed(now - card.run.since) : ''}</span></p>
    <p class="left">${left === null ? '' : about(left)}</p>
    <p class="asked">${t`Asked for ${request.wanted} at ${html`<time datetime=${request.created_at}
      title=${fully(asked)}>${asked.toLocaleTimeString(locale)}</time>`}, ${elapsed(now - since)} ago.`}</p>
    <button type="button" aria-label=${t`Cancel the request: ${title}`} aria-disabled=${card.busy}
      @click=${() => acts.cancel(request.task)}>${t`Cancel`}</button>
  </li>`;
}

function phase({ task, request: { position, linger_until: until }, run, due }) {
  if (task?.paused) return t`A manager has paused this task; your request waits until it goes on.`;
  if (run?.since) return t`The query is running:`;
  if (run?.phase === 'finished') return t`The query is done; handing out.`;
  if (position > 1) return t`Waiting; ${position - 1} asked before you.`;
  return until && due === null ? t`Waiting until ${clock(until)} for something to come.` : t`Waiting for the result.`;
}

/** done: from 0 to 1; null: unknown. */
function bar(done, left) {
  return html`<progress class="progress" max="1" value=${done === null ? nothing : done.toFixed(3)}
    aria-label=${t`How far it is`} aria-valuetext=${left || t`Nobody knows how long it takes`}></progress>`;
}
