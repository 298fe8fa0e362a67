/** What the desk shows beside tasks and pipeline: hints where they are empty, and today's closed work. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { t } from '../../lang.js';
import { when } from '../../parts.js';
import { letGo } from './words.js';

const shown = 8; // of today's closed work

export const noTasks = (manages) => html`<p id="no-tasks" class="empty">${t`There are no tasks yet.`} ${manages
  ? t`${html`<a href="/tasks">${t`Create the first one`}</a>`}, or use ${html`<code>getwork task create</code>`}.`
  : t`A manager creates them. They appear here as soon as there are some.`}</p>`;

/** The empty pipeline. tasks: whether there are any. */
export const noWork = (tasks) => html`<div id="empty" class="empty"><p>${t`No work yet.`} ${tasks ? t`Choose a task, and get work.` : ''}</p>
  ${tasks ? html`<ol>
    <li>${t`At a task press ${html`<b>${t`Get Work`}</b>`}. The best items come here, for you alone. Open the task’s name to say how many.`}</li>
    <li>${t`Work on them. Then ${html`<b>${t`Complete`}</b>`} each, or ${html`<b>${t`Return`}</b>`} it: for some hours, or until tomorrow.`}</li>
    <li>${t`You can undo a mistake for five seconds.`}</li>
  </ol>` : nothing}</div>`;

/** Today's closed work. */
export function closedToday(all) {
  if (all.length === 0) return nothing;
  return html`<section class="recent" aria-labelledby="recent-title">
    <h2 id="recent-title">${t`Done today`} <span class="count">${all.length}</span></h2>
    <ul id="recent">${repeat(all.slice(0, shown), (w) => w.id, (w) => html`<li>
      <b dir="auto">${w.title ?? w.item}</b> <span class="quiet">${when(w.closed_at)}</span>
      <span class="became">${letGo(w)}</span></li>`)}</ul>
    ${all.length > shown ? html`<p class="quiet">${t`and ${all.length - shown} before.`}</p>` : nothing}
  </section>`;
}
