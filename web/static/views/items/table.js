/** The table of work as a spreadsheet gets it: behind the server's columns, what the desk shows of each item. */

import { t } from '../../lang.js';
import { label, parse } from '../../words.js';
import { shown } from '../desk/display.js';

/** The rows of CSV, as the server writes it: [text, cells]. */
function* rowsOf(csv) {
  const cell = /(?:"([^"]*(?:""[^"]*)*)"|([^",\n]*))([,\n])/gy;
  let begin = 0;
  let cells = [];
  for (let m; (m = cell.exec(csv));) {
    cells.push(m[1]?.replaceAll('""', '"') ?? m[2]);
    if (m[3] === ',') continue;
    yield [csv.slice(begin, cell.lastIndex - 1), cells];
    begin = cell.lastIndex;
    cells = [];
  }
}

/** A cell that no spreadsheet takes for a formula, with plain spaces. */
function cellOf(text) {
  const plain = text.replace(/[\u00a0\u202f]/g, ' ');
  const safe = /^'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/.test(plain) ? `'${plain}` : plain;
  return `"${safe.replaceAll('"', '""')}"`;
}

/** The texts of a table with more columns. tasks: those that are known; asked: the name of the one that all work is of, if it is one. */
export async function* withShown(texts, tasks, asked) {
  const displays = new Map(tasks.map(({ name, display }) => [name, display]));
  const fields = displays.get(asked)?.fields ?? [];
  let head;
  for await (const text of texts) {
    const lines = [];
    for (const [line, cells] of rowsOf(text)) {
      const more = head ? cellsOf(Object.fromEntries(head.map((name, i) => [name, cells[i]]))) : [t`Shown as`, ...fields.map((f) => f.label || label(f.column))];
      head ??= cells;
      lines.push(`${[line, ...more.map(cellOf)].join()}\n`);
    }
    yield lines.join('');
  }

  function cellsOf({ task, item, details }) {
    const { title, fields: all } = shown(displays.get(task), item, details ? parse(details) : {});
    return [title, ...fields.map(({ column }) => all.find((f) => f.column === column)?.text ?? '')];
  }
}
