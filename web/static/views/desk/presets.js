/** Times for a return: presets, and hours that the user types. */

import { locale, t } from '../../lang.js';
import { now, tomorrow, untilTomorrow } from '../../now.js';

const hour = new Intl.DateTimeFormat(locale, { timeStyle: 'short' });

const forHours = (n) => ({ id: `${n}h`, text: t`for ${n} h`, after: () => `${n}h` });

/** after() returns the duration for the server, from the time of the call. It is never over 72 h: tomorrow's nine is at most 34 h away. */
export const presets = [
  forHours(1),
  forHours(4),
  {
    id: 'tomorrow',
    get text() { return t`until tomorrow, ${hour.format(tomorrow())}`; },
    after: untilTomorrow,
  },
  forHours(24),
  forHours(72),
];

/** Typed hours, such as 1.5 or 1,5, as a duration for the server; undefined if they are not a number from 0 to 72. */
export function afterHours(typed) {
  const hours = Number(typed.trim().replace(',', '.') || NaN);
  return hours >= 0 && hours <= 72 ? `${Math.round(hours * 3600)}s` : undefined;
}

const inHours = (n) => ({ id: `${n}h`, text: t`for ${n} h`, until: () => new Date(now() + n * 3_600_000).toISOString() });

/** When to come back to something that is put aside. */
export const laters = [
  inHours(1),
  inHours(4),
  {
    id: 'tomorrow',
    get text() { return t`until tomorrow, ${hour.format(tomorrow())}`; },
    until: () => tomorrow().toISOString(),
  },
];
