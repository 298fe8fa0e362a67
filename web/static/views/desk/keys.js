/** The desk's shortcuts. They act on the card that has the focus. */

import { t } from '../../lang.js';

/** desk: {rows(), cards(), next(), outbox, acts, say(text), draw(), focus(row)}: the pipeline's rows in order, and the tasks' cards by name. */
export function keys({ rows, cards, next, outbox, acts, say, draw, focus }) {
  const at = () => {
    const { id } = document.activeElement?.closest('#work > li') ?? {};
    return rows().find((r) => r.key === id);
  };
  const onRow = (f) => () => {
    const row = at();
    if (!row) say(t`Choose an item first, with j and k.`);
    else f(row);
  };
  const inCard = (selector, act, menu) => onRow((row) => {
    if (row.lost || outbox.of(row.work.id)) return;
    acts.open(row);
    if (menu) row.set({ menu });
    draw();
    act(document.querySelector(`#${row.key} ${selector}`), row);
  });
  const move = (step, within) => () => {
    const all = rows();
    const row = at();
    if (within && !row) return false; // the page scrolls
    const to = all[row ? all.indexOf(row) + step : step > 0 ? 0 : all.length - 1];
    if (to) focus(to);
  };
  const numbered = (n) => [...cards().values()][n - 1];
  const get = (c) => {
    if (!c || c.request) say(c ? t`You wait for work of this task already.` : t`There is no such task.`);
    else acts.ask(c.task.name, c.count);
  };
  const undoLast = () => {
    const row = at();
    const waits = row && outbox.of(row.work.id)?.state === 'waiting';
    const last = waits ? row : rows().find((r) => r.work.id === outbox.last);
    if (last) acts.undo(last);
    else say(t`There is nothing to undo.`);
  };
  const extend = (row) => { if (row.work.lease_expires_at && !row.lost) acts.extend(row); };
  const write = (field, row) => {
    row.set({ noting: true });
    draw();
    field?.focus();
  };
  const never = (button) => {
    button?.focus();
    button?.click();
  };
  const key = (name, does, run, repeated) => ({ key: name, does, run, repeat: repeated });
  return [
    key('j', t`Next item`, move(1), true),
    key('k', t`Item before`, move(-1), true),
    key('ArrowDown', undefined, move(1, true), true),
    key('ArrowUp', undefined, move(-1, true), true),
    key('Enter', t`Open an item`), // every button does that
    key('c', t`Complete`, onRow((row) => acts.letGo(row, { outcome: 'complete' }))),
    key('n', t`Complete and next`, onRow((row) => acts.letGo(row, { outcome: 'complete' }, { next: true }))),
    key('r', t`Return: then Tab to for how long, and Enter`, inCard('.return button', (button) => button?.focus(), 'return')),
    key('x', t`Remove from the queue; twice, to be sure`, inCard('.never', never, 'more')),
    key('e', t`Keep: the lease begins anew`, onRow(extend)),
    key('o', t`Write a note`, inCard('textarea', write)),
    key('Escape', t`Leave a field or a menu`),
    key('u', t`Undo`, undoLast),
    key('w', t`Get work of the item’s task, or the first`, () => get(cards().get(at()?.work.task) ?? numbered(1))),
    key('g n', t`Get next work`, next),
    key('g 1', t`Get work of the first task; g 2 of the second …`, () => get(numbered(1))),
    ...[2, 3, 4, 5, 6, 7, 8, 9].map((n) => key(`g ${n}`, undefined, () => get(numbered(n)))),
  ];
}
