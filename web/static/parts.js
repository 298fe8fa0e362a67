/** Parts that several views draw with: times, and drawing at most once a frame. */

import { html, nothing } from './lib/lit-html/lit-html.js';
import { locale, t } from './lang.js';
import { now } from './now.js';
import { faceOf, initials } from './words.js';

const exact = new Intl.DateTimeFormat(locale, { dateStyle: 'full', timeStyle: 'long' });
const hour = new Intl.DateTimeFormat(locale, { timeStyle: 'short' });
const day = new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeStyle: 'short' });

/** A time as a clock shows it, in the reader's zone, with the day if that is not today; exact on hover. */
export function when(iso) {
  if (!iso) return nothing;
  const then = new Date(iso);
  const today = then.toDateString() === new Date(now()).toDateString();
  return html`<time datetime=${iso} title=${exact.format(then)}>${(today ? hour : day).format(then)}</time>`;
}

/** One of the icons in index.html, by its name; what it says stands beside it. */
export const icon = (name) => html`<svg class="i" aria-hidden="true"><use href="#${name}"></use></svg>`;

/** A person's initials in their colour; the name stands beside them. */
export const face = (name) => html`<span class="face" dir="auto" data-face=${faceOf(name)} aria-hidden="true" translate="no">${initials(name)}</span>`;

/** How long ago a time was, by the server's clock (ahead: client.ahead), such as 12 s or 3 h 5 min; exact on hover. */
export function age(iso, ahead = 0) {
  if (!iso) return nothing;
  return html`<time datetime=${iso} title=${exact.format(new Date(iso))}>${span(Date.now() + ahead - Date.parse(iso))}</time>`;
}

/** Milliseconds as 45 s, 12 min, 3 h 5 min or 2 d 4 h. */
export function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  const [m, h, d] = [Math.floor(s / 60), Math.floor(s / 3600), Math.floor(s / 86400)];
  if (s < 100) return t`${s} s`;
  if (m < 100) return t`${m} min`;
  if (h < 48) return m % 60 && h < 10 ? t`${h} h ${m % 60} min` : t`${h} h`;
  return h % 24 && d < 10 ? t`${d} d ${h % 24} h` : t`${d} d`;
}

const fixedTo = []; // formatters by decimals: making one takes longer than drawing a row

/** A number with so many decimals. */
export const fixed = (n, places) => {
  fixedTo[places] ??= new Intl.NumberFormat(locale, { minimumFractionDigits: places, maximumFractionDigits: places });
  return fixedTo[places].format(n);
};

/** Milliseconds of something measured: 3 ms, 1.25 s, 2 min 5 s. */
export function took(ms) {
  if (ms === null || ms === undefined) return '–';
  if (ms < 1000) return t`${ms < 10 ? fixed(ms, 1) : Math.round(ms)} ms`;
  const s = Math.round(ms / 1000);
  if (s < 60) return t`${fixed(ms / 1000, ms < 10_000 ? 2 : 1)} s`;
  return t`${Math.floor(s / 60)} min ${s % 60} s`;
}

/** Dialogs are rare, so their modules are loaded on demand. The promise has the module, or null if no dialog is to open now. */
export async function onDemand(imported, { app, signal }) {
  const loaded = await imported.catch(() => app.say(t`It can’t be loaded now. Load the page anew.`));
  return !loaded || signal.aborted || document.querySelector('dialog[open]') ? null : loaded;
}

/** Makes of f a function that, however often it is called, calls f once before the next frame; never after signal. */
export function onceAFrame(f, signal) {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      if (!signal?.aborted) f();
    });
  };
}

/** Calls f every so many ms, until the signal is aborted. */
export function every(ms, f, signal) {
  const timer = setInterval(f, ms);
  signal.addEventListener('abort', () => clearInterval(timer));
}
