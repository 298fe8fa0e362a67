/** One task on the wall: figures that are read from across the room. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { locale, t } from '../../lang.js';
import { age, took, when } from '../../parts.js';
import { elapsed } from '../../words.js';

const hour = 3_600_000;

/** How many of the last hour's, by the history's buckets; which of them those are, time alone changes. */
const lately = (buckets, now, column) => buckets.filter((b) => Date.parse(b.at) + 300_000 > now - hour).reduce((sum, b) => sum + b[column], 0);

/** Reports whether a run has lasted so much longer than the last ones that somebody should check. */
const slow = (ms, usual) => usual !== null && ms > Math.max(1500 * usual, 1000 * usual + 5000);

/**
 * A task's state, the worst first: {kind, word}. last: its last ended run, if known.
 */
export function condition(task, last, now) {
  const ms = task.running_since ? now - Date.parse(task.running_since) : null;
  if (last?.state === 'failed' || last?.state === 'lost') return { kind: 'bad', word: t`Failing` };
  if (ms !== null && slow(ms, task.usual_seconds)) return { kind: 'warn', word: t`Longer than usual` };
  if (task.paused) return { kind: 'warn', word: t`Paused` };
  if (ms !== null) return { kind: 'busy', word: t`Running` };
  return { kind: 'good', word: task.waiting ? t`Waiting` : task.held ? t`At work` : t`Quiet` };
}

const quarter = 15 * 60_000;

/** The pace: how many were completed in the last quarter of an hour. */
function pace(buckets, now) {
  return buckets.filter((b) => Date.parse(b.at) + 300_000 > now - quarter).reduce((sum, b) => sum + b.completed, 0);
}

/** How much happens: what was handed out and completed in the last hour, and who waits. */
export const activity = (task, { buckets } = {}, now) =>
  task.waiting + (buckets ? lately(buckets, now, 'assigned') + lately(buckets, now, 'completed') : task.held);

/** quiet is dimmed, busiest is enlarged. Trouble is never quiet. */
function load(task, buckets, kind, now, biggest) {
  if (biggest) return 'busiest';
  return kind === 'good' && !task.held && !activity(task, { buckets }, now) ? 'quiet' : 'usual';
}

/**
 * Draws a task. biggest: it is the busiest by far. figures: {oldest, buckets, last} as far as they are known: the request that waits longest, the last hours, and
 * the last run that has ended. now and ahead: by the server's clock.
 */
export function tile(task, { oldest, buckets, last } = {}, now, ahead, biggest = false) {
  const { kind, word } = condition(task, last, now);
  const rate = buckets ? pace(buckets, now) : 0;
  const since = [
    task.waiting && oldest ? t`the longest for ${age(oldest.created_at, ahead)}` : nothing,
    rate ? html`<span class="pace">${t`${figure(rate)} completed in 15 min`}</span>` : nothing,
  ].filter((part) => part !== nothing);
  return html`<article class="tile" data-kind=${kind} data-load=${load(task, buckets, kind, now, biggest)} data-task=${task.name} aria-labelledby=${`tile-${task.name}`}>
    <header><h2 id=${`tile-${task.name}`} dir="auto">${task.title || task.name}</h2><span class="condition">${word}</span></header>
    <dl>
      <div class="waiting"><dt>${t`waiting`}</dt><dd data-digits=${Math.min(5, figure(task.waiting).length)}>${figure(task.waiting)}</dd>
        <dd class="since">${since.map((part, i) => html`${i ? ' · ' : nothing}${part}`)}</dd></div>
      <div class="held"><dt>${t`held`}</dt><dd>${figure(task.held)}</dd></div>
      ${buckets ? html`
        <div class="given"><dt>${t`handed out, last hour`}</dt><dd>${figure(lately(buckets, now, 'assigned'))}</dd></div>
        <div class="completed"><dt>${t`completed, last hour`}</dt><dd>${figure(lately(buckets, now, 'completed'))}</dd></div>` : nothing}
    </dl>
    ${run(task, last, now)}
  </article>`;
}

const figure = (n) => n.toLocaleString(locale);

function run(task, last, now) {
  if (task.query === null) return html`<p class="run">${t`An inbox; ${figure(task.shelf)} ready to be handed out.`}</p>`;
  const usual = task.usual_seconds;
  if (task.running_since) {
    const ms = now - Date.parse(task.running_since);
    const clock = html`<b>${elapsed(ms)}</b>`;
    if (usual === null) return html`<p class="run">${t`The query runs: ${clock}`}</p>`;
    return html`<p class="run">${t`The query runs: ${clock}, usually ${took(1000 * usual)}`}</p>
      <progress max=${Math.max(1, 1000 * usual)} value=${Math.min(ms, Math.max(1, 1000 * usual))} aria-label=${t`Of its usual time`}></progress>`;
  }
  switch (last?.state) {
    case 'failed': return html`<p class="run" dir="auto">${last.error
      ? t`The last run failed at ${when(last.finished_at)}: ${last.error}` : t`The last run failed at ${when(last.finished_at)}.`}</p>`;
    case 'lost': return html`<p class="run">${t`The last run was lost with its node.`}</p>`;
    case 'finished': return html`<p class="run">${t`The last run found ${figure(last.candidates)} in ${took(last.duration_ms)}, at ${when(last.finished_at)}.`}</p>`;
  }
  return html`<p class="run">${t`No run is under way.`}</p>`;
}
