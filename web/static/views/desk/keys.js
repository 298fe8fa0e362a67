/** The desk's shortcuts. They act on the card that has the focus. */

import { t } from '../../lang.js';

/**
 * desk: {rows(), opened(), cards(), next(), then(), endAs(row, n), outbox, acts, say(text), draw(), focus(row)}: the rows in order, the one in
 * hand, and the tasks' cards as they are shown.
 */
export function keys({ rows, opened, cards, next, then, endAs, cancel, outbox, acts, say, draw, focus }) {
  const at = () => {
    const { id } = document.activeElement?.closest('#work li.work') ?? {};
    return rows().find((r) => r.key === id);
  };
  const onRow = (f) => () => {
    const row = at() ?? opened();
    if (!row) say(t`There is nothing in hand: get work first.`);
    else f(row);
  };
  const inSheet = (act) => onRow((row) => {
    if (row.lost || outbox.of(row.work.id)) return;
    acts.open(row);
    draw();
    act(row);
  });
  const inMenu = (menu) => inSheet((row) => {
    if (!document.querySelector(`.sheet [data-menu=${menu}]`)) return; // it is not for this task, or not for agents
    row.set({ menu });
    draw();
    document.querySelector(`.choices-of.${menu} button`)?.focus();
  });
  const move = (step, within) => () => {
    const all = rows();
    const row = at();
    if (within && !row) return false; // the page scrolls
    const to = all[row ? all.indexOf(row) + step : step > 0 ? 0 : all.length - 1];
    if (to) focus(to);
  };
  const numbered = (n) => cards()[n - 1];
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
  const write = () => document.getElementById('note')?.focus();
  const never = (row) => {
    const button = document.querySelector('.outcomes .never');
    button?.focus();
    if (row.lost) return;
    button?.click();
  };
  const find = () => {
    const field = document.getElementById('find');
    field?.focus();
    field?.select();
  };
  const key = (name, does, run, repeated) => ({ key: name, does, run, repeat: repeated });
  return [
    key('j', t`Next item`, move(1), true),
    key('k', t`Item before`, move(-1), true),
    key('ArrowDown', undefined, move(1, true), true),
    key('ArrowUp', undefined, move(-1, true), true),
    key('Enter', t`Open an item`), // every button does that
    key('n', t`Get next work`, next),
    key('1', t`End it in the first way; 2 in the second …`, inSheet((row) => endAs(row, 1))),
    ...[2, 3, 4, 5, 6, 7, 8, 9].map((n) => key(`${n}`, undefined, inSheet((row) => endAs(row, n)))),
    key('c', t`Complete`, onRow((row) => { if (!row.lost) endAs(row, 0); })),
    key('x', t`And then the next one, or not`, then),
    key('l', t`Later: then Tab to for how long, and Enter`, inMenu('later')),
    key('r', t`Give back: then Tab to for how long, and Enter`, inMenu('return')),
    key('d', t`Remove from the queue; twice, to be sure`, inSheet(never)),
    key('e', t`Keep: the lease begins anew`, onRow(extend)),
    key('o', t`Write a note`, inSheet(write)),
    key('/', t`Find a task`, find),
    key('Escape', t`Leave a field or a menu; cancel a request`, cancel),
    key('u', t`Undo`, undoLast),
    key('w', t`Get work of the item’s task, or the first`, () => get(cards().find((c) => c.task.name === (at() ?? opened())?.work.task) ?? numbered(1))),
    key('g n', undefined, next),
    key('g 1', t`Get work of the first task; g 2 of the second …`, () => get(numbered(1))),
    ...[2, 3, 4, 5, 6, 7, 8, 9].map((n) => key(`g ${n}`, undefined, () => get(numbered(n)))),
  ];
}
