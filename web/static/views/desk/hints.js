/** What the desk shows beside tasks and pipeline: hints where they are empty, and today's closed work. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { repeat } from '../../lib/lit-html/directives/repeat.js';
import { when } from '../../parts.js';
import { letGo } from '../../words.js';

const shown = 8; // of today's closed work

export const noTasks = (manages) => html`<p id="no-tasks" class="empty">There are no tasks yet. ${manages
  ? html`<a href="/tasks">Create the first one</a>, or use <code>getwork task create</code>.`
  : html`A manager creates them. They appear here as soon as there are some.`}</p>`;

/** The empty pipeline. tasks: whether there are any. */
export const noWork = (tasks) => html`<div id="empty" class="empty"><p>You hold nothing. ${tasks ? 'Choose a task, and get work.' : ''}</p>
  ${tasks ? html`<ol>
    <li>At a task press <b>Get Work</b>. The best items come here, for you alone. Open the task’s name to say how many.</li>
    <li>Work on them. Then <b>Complete</b> each, or <b>Return</b> it: for some hours, or until tomorrow.</li>
    <li>You can undo a mistake for five seconds.</li>
  </ol>` : nothing}</div>`;

/** Today's closed work. ahead: client.ahead. */
export function closedToday(all, ahead) {
  if (all.length === 0) return nothing;
  return html`<section class="recent" aria-labelledby="recent-title">
    <h2 id="recent-title">Let go of today <span class="count">${all.length}</span></h2>
    <ul id="recent">${repeat(all.slice(0, shown), (w) => w.id, (w) => html`<li>
      <b dir="auto">${w.title ?? w.item}</b> <span class="quiet">${when(new Date(Date.parse(w.closed_at) - ahead).toISOString())}</span>
      <span class="became">${letGo(w)}</span></li>`)}</ul>
    ${all.length > shown ? html`<p class="quiet">and ${all.length - shown} before.</p>` : nothing}
  </section>`;
}
