/** What is on its way: the sheet of the first request that waits, and lines for the others. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { locale, plural, t } from '../../lang.js';
import { icon } from '../../parts.js';
import { clock, elapsed, fully } from '../../words.js';
import { hint } from './tray.js';
import { about, coming, ran, things } from './words.js';

const words = (card, now) => {
  const { request, task, due } = card;
  const left = due === null ? null : due - now;
  const lingers = request.linger_until && due === null;
  return {
    left, lingers,
    title: task?.title || (request.tasks ? t`any of your tasks` : request.task),
    head: lingers ? t`Waiting for ${things(request.wanted, task?.display)}` : coming(request.wanted, task?.display, left),
  };
};

/** card: of the request's task; bell: whether the browser can still be asked to tell; acts: {cancel(name), bell()}. */
export function pending(card, now, bell, acts) {
  const { request, since } = card;
  const { left, lingers, title, head } = words(card, now);
  const asked = new Date(since);
  return html`<section class="sheet blank coming pending" aria-labelledby="item" data-time="now">
    <p class="soft" dir="auto">${title}</p>
    <h1 id="item" tabindex="-1">${head}</h1>
    ${lingers ? nothing : bar(card.bar(now), left === null ? '' : about(left))}
    <p class="soft phase"><span role="status">${phase(card)}</span> ${run(card, now)} <span class="left">${left === null ? '' : about(left)}</span></p>
    <div class="bar"><button type="button" aria-label=${t`Cancel the request: ${title}`} aria-keyshortcuts="Escape" aria-disabled=${card.busy ? 'true' : nothing}
      @click=${() => acts.cancel(request.task)}>${t`Cancel`}${hint(t`Esc`)}</button>${
      bell ? html`<button class="plain bell" type="button" @click=${acts.bell}>${icon('bell')}${t`Tell me when it’s here`}</button>` : nothing}</div>
    <p class="small soft asked">${t`Asked for ${request.wanted} at ${html`<time datetime=${request.created_at}
      title=${fully(asked)}>${asked.toLocaleTimeString(locale)}</time>`}, ${elapsed(now - since)} ago.`} ${t`You may leave this page: what comes waits on your desk.`}</p>
  </section>`;
}

/** A line for a request that waits beside other work. */
export function also(card, now, acts) {
  const { left, title, head, lingers } = words(card, now);
  return html`<li class="line pending" data-time="now"><div><span class="coming">${head}</span> <span class="soft small" dir="auto">${title}</span>
    <p class="small soft phase"><span role="status">${phase(card)}</span> ${run(card, now)} <span class="left">${left === null ? '' : about(left)}</span></p>
    <p class="small soft asked">${t`Asked for ${card.request.wanted} at ${html`<time datetime=${card.request.created_at}>${
      new Date(card.since).toLocaleTimeString(locale)}</time>`}, ${elapsed(now - card.since)} ago.`}</p></div>
    <button class="plain" type="button" aria-label=${t`Cancel the request: ${title}`} aria-disabled=${card.busy ? 'true' : nothing} @click=${() => acts.cancel(card.request.task)}>${t`Cancel`}</button>
    ${lingers ? nothing : bar(card.bar(now), left === null ? '' : about(left))}</li>`;
}

function phase({ task, request: { position, linger_until: until }, run, due }) {
  if (task?.paused) return t`A manager has paused this task; your request waits until it goes on.`;
  if (run?.since) return t`The query is running:`;
  if (run?.phase === 'finished') return t`The query is done; handing out.`;
  const waits = task?.waiting > 1 ? ` ${plural(task.waiting - 1, '{0} person waits with you.', '{0} people wait with you.')}` : '';
  if (position > 1) return t`Waiting; ${position - 1} asked before you.`;
  return until && due === null ? t`Waiting until ${clock(until)} for something to come.` : `${t`Waiting for the result.`}${waits}`;
}

const run = (card, now) => (card.running(now) === null ? nothing : html`<span class="tag">${ran(card.running(now), card.usual)}</span>`);

/** done: from 0 to 1; null: unknown. */
function bar(done, left) {
  return html`<progress class="progress" max="1" value=${done === null ? nothing : done.toFixed(3)}
    aria-label=${t`How far it is`} aria-valuetext=${left || t`Nobody knows how long it takes`}></progress>`;
}
