/** What the desk shows where it is empty. */

import { html, nothing, svg } from '../../lib/lit-html/lit-html.js';
import { t } from '../../lang.js';

export const noTasks = (manages) => html`<p id="no-tasks" class="empty">${t`There are no tasks yet.`} ${manages
  ? t`${html`<a href="/tasks">${t`Create the first one`}</a>`}, or use ${html`<code>getwork task create</code>`}.`
  : t`A manager creates them. They appear here as soon as there are some.`}</p>`;

const still = svg`<path d="M6 64h108"></path><path d="M50 34h28v20a10 10 0 0 1-10 10h-8a10 10 0 0 1-10-10zM78 40c10 0 10 15-1 15"></path><path d="M58 26c-4-5 4-8 0-14M69 26c-4-5 4-8 0-14"></path><path d="m88 59 20-3 3 4-3 2-20 2zM14 60h22"></path>`;

/** The clear desk. view: {tasks, done, back, best}: whether there are tasks; how much was done; when something comes back; where the next is from. */
export const noWork = ({ tasks, done, best, back }, supply, acts) => html`<section id="empty" class="sheet blank" aria-labelledby="item">
  <svg class="still" viewBox="0 0 120 72" aria-hidden="true">${still}</svg>
  <h1 id="item" tabindex="-1">${t`Your desk is clear.`}</h1>
  ${tasks ? html`<p class="soft">${t`${html`<b>${t`Get next work`}</b>`} brings what is most urgent, for you alone; or choose a task on the left.`} ${best
    ? t`Right now that is most likely one of ${html`<b dir="auto">${best}</b>`}.` : ''} ${t`You can undo a mistake for five seconds.`}</p>
  <dl class="figures"><div><dt>${t`done today`}</dt><dd>${done}</dd></div>${back ? html`<div><dt>${t`comes back`}</dt><dd>${back}</dd></div>` : nothing}</dl>
  ${supply.n ? nothing : html`<p><button class="keep-three" type="button" @click=${() => { supply.n = 3; acts.supply(); }}>${t`Keep 3 on my desk while I’m here`}</button></p>`}` : nothing}
</section>`;
