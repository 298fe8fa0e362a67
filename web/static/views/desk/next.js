/** The next work of all tasks, and keeping the user supplied. */

import { t } from '../../lang.js';
import { outcome } from './words.js';

export const all = '*'; // the name of the card of all tasks

const here = 600_000; // ms after the last input in which the user is there
const pause = 10_000; // ms between two requests that got nothing
const barred = 60_000; // the same, if the user may have nothing
const patience = '10m';
const most = 20;

/** The task that the next work comes from, most likely: with late work, then the highest priority, then what is there at once. */
export function likely(cards) {
  const some = [...cards.values()].map(({ task }) => task).filter((task) => !task.paused && !task.failures && (task.shelf || task.backlog?.free));
  const rank = ({ late, priority, shelf }) => [late > 0, priority ?? 0, shelf > 0];
  return some.sort((a, b) => rank(b).map((v, i) => v - rank(a)[i]).find(Boolean) ?? 0)[0];
}

const none = {
  no_match: t`None of your tasks has anything now.`,
  all_held: t`Everything in your tasks is held or put off.`,
  rules: t`There is work, but none that you may have.`,
  at_limit: t`You hold as much as you may. Finish or return something first.`,
  paused: t`Your tasks are paused.`,
};

/** How a request of all tasks ended. from: the title of the task that answered. */
export function said(request, from) {
  if (request.assigned > 0) return t`It came from ${from}.`;
  return request.state === 'none' && none[request.reason] || outcome(request);
}

/** Asks whenever the user holds fewer items than they want, as long as they are there. */
export class Supply {
  n = 0; // how many items; 0: off
  #after = 0; // nothing is asked for before

  constructor(user) {
    this.#key = `getwork.supply.${user}`;
    this.n = Math.min(most, Number(sessionStorage.getItem(this.#key)) || 0);
  }

  #key;

  save() {
    this.#after = 0;
    sessionStorage.setItem(this.#key, String(this.n));
  }

  /** holds: how many items; active: when the user was last active, by performance.now(). */
  look(card, holds, active, ask) {
    const now = performance.now();
    const away = document.hidden && now - active > here;
    if (holds >= this.n || away || card.busy || card.request || now < this.#after) return;
    this.#after = now + pause;
    ask(all, 1, { linger: patience });
  }

  /** A request of all tasks has ended. */
  heard({ assigned, reason }) {
    if (assigned > 0) this.#after = 0;
    else if (['at_limit', 'away', 'paused'].includes(reason)) this.#after = performance.now() + barred;
  }
}
