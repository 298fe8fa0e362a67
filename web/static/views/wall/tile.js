/** One task on the wall: a figure that is read from across the room, and why it stands where it stands. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { locale, plural, t } from '../../lang.js';
import { age, span, took, when } from '../../parts.js';
import { elapsed, nearly } from '../../words.js';

const hour = 3_600_000;

/** How many of the last hour's, by the history's buckets; which of them those are, time alone changes. */
const lately = (buckets, now, column) => buckets.filter((b) => Date.parse(b.at) + 300_000 > now - hour).reduce((sum, b) => sum + b[column], 0);

/** Reports whether a run has lasted so much longer than the last ones that somebody should check. */
const slow = (ms, usual) => usual !== null && ms > Math.max(1500 * usual, 1000 * usual + 5000);

/** How many items are left to do, as far as that is known; otherwise null. */
export const leftOf = (task) => task.backlog?.free ?? (task.query === null ? task.shelf : null);

/** What a tile looks like, the worst first: its class, and its colour by data-time. */
const looks = [
  { kind: 'failing', look: 'loud', time: 'fifth' }, { kind: 'late', look: 'wash', time: 'fifth' }, { kind: 'slow', look: 'wash', time: 'half' },
  { kind: 'waiting', look: 'wash', time: 'now' }, { kind: 'paused', look: 'wash', time: 'half' }, { kind: 'work', look: '', time: 'ok' }, { kind: 'idle', look: 'idle', time: 'none' },
];

/** A task's state: one of looks, with its rank. last: its last ended run, if known. */
export function condition(task, { last, buckets } = {}, now) {
  const ms = task.running_since ? now - Date.parse(task.running_since) : null;
  const active = task.held || leftOf(task) || ms !== null || (buckets && lately(buckets, now, 'assigned') + lately(buckets, now, 'completed'));
  const kind = task.failures || last?.state === 'failed' || last?.state === 'lost' ? 'failing' : task.late ? 'late' : ms !== null && slow(ms, task.usual_seconds) ? 'slow'
    : task.paused ? 'paused' : task.waiting ? 'waiting' : active ? 'work' : 'idle';
  const rank = looks.findIndex((look) => look.kind === kind);
  return { ...looks[rank], rank };
}

const figure = (n) => n.toLocaleString(locale);

/**
 * Draws a task. known: {oldest, buckets, last} as far as they are known: the request that waits longest, the last hours, and the last
 * run that has ended. now and ahead: by the server's clock.
 */
export function tile(task, known = {}, now, ahead) {
  const { kind, look, time } = condition(task, known, now);
  const id = `tile-${task.name}`;
  const left = leftOf(task);
  return html`<li class=${`tile ${look}${task.running_since || kind === 'failing' ? ' dense' : ''}`} data-kind=${kind} data-time=${time} data-task=${task.name}><article aria-labelledby=${id}>
    <h2 id=${id} dir="auto">${task.title || task.name}</h2>
    ${big(task, kind, left)}
    <p>${facts(task, known, now, ahead, kind, left).map((fact) => html`${fact} `)}</p>
  </article></li>`;
}

function big(task, kind, left) {
  const says = (name, n, text) => html`<p class=${`big ${name}`}><b>${figure(n)}</b> <small>${text}</small></p>`;
  if (kind === 'late') return says('late', task.late, left ? t`of ${figure(Math.max(left, task.late))} late` : t`late`);
  if (kind === 'idle') return html`<p class="big">–</p>`;
  return left === null ? says('held', task.held, t`held`) : says('left', left, t`left`);
}

/** What stands below the figure, most urgent first; what a small tile has no room for has the class more. */
function facts(task, { oldest, buckets, last }, now, ahead, kind, left) {
  const given = buckets ? lately(buckets, now, 'assigned') : null;
  const completed = buckets ? lately(buckets, now, 'completed') : null;
  const most = [
    kind === 'failing' && html`<span class="run" dir="auto">${failing(task, last)}</span>`,
    kind === 'idle' && html`<span>${left === null ? t`No run so far` : t`Nothing to do`}</span>`,
    task.paused && html`<span>${t`Paused`}</span>`,
    task.waiting > 0 && html`<span class="waiting"><b>${figure(task.waiting)}</b> ${plural(task.waiting, 'waits', 'wait')}${oldest ? html`, ${t`the longest for ${age(oldest.created_at, ahead)}`}` : nothing}</span>`,
    task.running_since && html`<span class="run">${running(task, now, kind)}</span>`,
    task.held > 0 && left !== null && kind !== 'idle' && html`<span class="held"><b>${figure(task.held)}</b> ${t`held`}</span>`,
    typeof task.done_today === 'number' && html`<span class="done"><b>${figure(task.done_today)}</b> ${t`done today`}</span>`,
    task.through_at && kind !== 'failing' && !task.paused && left ? html`<span>${t`through ${nearly(task.through_at)}`}</span>` : null,
  ].filter(Boolean).slice(0, task.running_since ? 3 : 4);
  return [...most,
    given ? html`<span class="given more"><b>${figure(given)}</b> ${t`handed out in the last hour`}</span>` : null,
    completed ? html`<span class="completed more"><b>${figure(completed)}</b> ${t`done in the last hour`}</span>` : null,
    last?.state === 'finished' && html`<span class="run more">${t`The last run found ${figure(last.candidates)} in ${took(last.duration_ms)}, at ${when(last.finished_at)}.`}</span>`,
  ].filter(Boolean);
}

function failing(task, last) {
  if (last?.state === 'lost') return t`The last run was lost with its node.`;
  const error = last?.error ?? task.last_error;
  if (last?.finished_at) return error ? t`Failing since ${when(last.finished_at)}: ${error}` : t`Failing since ${when(last.finished_at)}`;
  return error ? t`Failing: ${error}` : t`Failing`;
}

function running(task, now, kind) {
  const clock = elapsed(now - Date.parse(task.running_since));
  if (task.usual_seconds === null) return t`The query runs: ${clock}`;
  const about = task.usual_seconds < 1 ? took(1000 * task.usual_seconds) : span(1000 * task.usual_seconds);
  return kind === 'slow' ? t`The query runs: ${clock}, longer than usual (${about})` : t`The query runs: ${clock} of about ${about}`;
}
