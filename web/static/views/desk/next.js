/** "Get next work" over all tasks, and keeping the user supplied. */

import { html } from '../../lib/lit-html/lit-html.js';
import { live } from '../../lib/lit-html/directives/live.js';
import { t } from '../../lang.js';
import { hint } from './card.js';
import { outcome } from './words.js';

export const all = '*'; // the name of the card of all tasks

const here = 600_000; // ms after the last input in which the user is there
const pause = 10_000; // ms between two requests that got nothing
const barred = 60_000; // the same, if the user may have nothing
const patience = '10m';
const most = 20;

/** What is above the tasks. card: of all tasks; view: {from, ready}: the title of the task that answered last; how much is there at once. */
export function next(card, { from, ready }, supply, acts) {
  const { busy, request, ended, error } = card;
  return html`<form class="get-next card" @submit=${(e) => { e.preventDefault(); if (!request) acts.ask(all, 1); }}>
    <button class="primary" type="submit" aria-disabled=${busy || Boolean(request)} aria-keyshortcuts="g n">${t`Get next work`}${hint('g n')}</button>
    <span class="quiet there">${ready ? t`${ready} ready at once` : ''}</span>
    <label class="supply">${t`Keep me supplied with`} <input type="number" min="0" max=${most} .value=${live(String(supply.n))}
      @change=${(e) => { supply.n = Math.min(most, Math.max(0, Math.trunc(e.target.valueAsNumber) || 0)); acts.supply(); }}></label>
    <p class="quiet ended" dir="auto" role="status">${ended && !busy ? said(ended, from) : ''}</p>
    <p class="error" role="alert" dir="auto">${error}</p>
  </form>`;
}

const none = {
  no_match: t`None of your tasks has anything now.`,
  all_held: t`Everything in your tasks is held or put off.`,
  rules: t`There is work, but none that you may have.`,
  at_limit: t`You hold as much as you may. Finish or return something first.`,
  paused: t`Your tasks are paused.`,
};

function said(request, from) {
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
