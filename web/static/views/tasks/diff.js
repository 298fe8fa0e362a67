/** The differences between two texts, line by line. */

const enough = 1000; // lines that differ; the cost grows with the square, and nobody reads more

/** A text's lines; '' has none. */
export const linesOf = (text) => (text ? text.replace(/\r\n?/g, '\n').split('\n') : []);

/**
 * The shortest way from was to is, lists of lines (Myers, "An O(ND) difference algorithm", 1986): [{kind, text, was, is}],
 * kind 'same', 'del' or 'ins'; was and is: the line's number in either text from 1, where it is there. Texts that differ
 * in very much are one removed and one added.
 */
export function diff(was, is) {
  let head = 0;
  while (head < was.length && head < is.length && was[head] === is[head]) head++;
  let tail = 0;
  while (tail < was.length - head && tail < is.length - head && was[was.length - 1 - tail] === is[is.length - 1 - tail]) tail++;
  const a = was.slice(head, was.length - tail);
  const b = is.slice(head, is.length - tail);
  const found = [];
  let [x, y] = [0, 0]; // lines that were taken of each
  const step = (kind) => {
    found.push({
      kind, text: kind === 'ins' ? is[y] : was[x],
      was: kind === 'ins' ? null : x + 1, is: kind === 'del' ? null : y + 1,
    });
    if (kind !== 'ins') x++;
    if (kind !== 'del') y++;
  };
  for (let i = 0; i < head; i++) step('same');
  for (const kind of way(a, b)) step(kind);
  for (let i = 0; i < tail; i++) step('same');
  return found;
}

function way(a, b) {
  const most = Math.min(a.length + b.length, enough);
  const reach = new Map([[1, 0]]); // of each diagonal: how far into a
  const rounds = [];
  for (let d = 0; d <= most; d++) {
    const before = new Map();
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && reach.get(k - 1) < reach.get(k + 1));
      let x = down ? reach.get(k + 1) : reach.get(k - 1) + 1;
      before.set(k, { x, down });
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      reach.set(k, x);
      if (x >= a.length && x - k >= b.length) {
        rounds.push(before);
        return back(rounds, a.length, b.length);
      }
    }
    rounds.push(before);
  }
  return [...a.map(() => 'del'), ...b.map(() => 'ins')];
}

/** Walks the rounds from the end to the beginning. */
function back(rounds, x, y) {
  const kinds = [];
  for (let d = rounds.length - 1; d >= 0; d--) {
    const { x: from, down } = rounds[d].get(x - y);
    for (; x > from; x--, y--) kinds.push('same');
    if (d === 0) break;
    if (down) y--;
    else x--;
    kinds.push(down ? 'ins' : 'del');
  }
  return kinds.reverse();
}

/** How many lines were added and removed. */
export function counted(changes) {
  const of = (kind) => changes.filter((c) => c.kind === kind).length;
  return { added: of('ins'), removed: of('del') };
}

/** The changes, and so many lines around each; what is left out between is {kind: 'gap', count}. */
export function around(changes, lines = 3) {
  const near = changes.map(() => false);
  changes.forEach((c, i) => {
    if (c.kind !== 'same') near.fill(true, Math.max(0, i - lines), i + lines + 1);
  });
  const shown = [];
  changes.forEach((c, i) => {
    if (near[i]) shown.push(c);
    else if (shown.at(-1)?.kind === 'gap') shown.at(-1).count++;
    else shown.push({ kind: 'gap', count: 1 });
  });
  return shown;
}
