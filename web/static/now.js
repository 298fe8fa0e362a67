/**
 * The time by the server's clock. Whatever the page says or decides about a day or an hour goes by it, and by the reader's zone: all
 * times come from the server, and the clock of the reader's machine may be wrong.
 */

let of = { ahead: 0 };

/** Makes now() go by a client's clock. */
export function goBy(client) { of = client; }

export const now = () => Date.now() + of.ahead;

/** Nine in the morning of the next day, where the reader is. */
export function tomorrow() {
  const today = new Date(now());
  return new Date(today.getFullYear(), today.getMonth(), today.getDate() + 1, 9);
}

/** Nine in the morning of the next Monday, where the reader is. */
export function monday() {
  const today = new Date(now());
  return new Date(today.getFullYear(), today.getMonth(), today.getDate() + ((8 - today.getDay()) % 7 || 7), 9);
}

/** How long it is until tomorrow’s, as a duration for the server. */
export const untilTomorrow = () => `${Math.ceil((tomorrow() - now()) / 1000)}s`;
