/**
 * An editor for SQL: a textarea, whose text is drawn with colours and line numbers behind it. Tab leaves it, as it leaves any
 * field; Ctrl+] and Ctrl+[ indent and outdent; Enter keeps the line's indentation.
 */

import { keyOf } from '../../keys.js';
import { offsetOf, pieces, placeOf } from './sql.js';

const colours = 30_000; // longer texts are drawn without, so that typing stays quick
const indent = '  ';

export class Editor {
  /** typed(text) is told what is typed. */
  constructor({ id, label, describedBy, typed }) {
    this.element = make('div', 'sql');
    this.element.dir = 'ltr'; // code is, whatever its strings say
    this.numbers = make('pre', 'sql-numbers');
    this.shown = make('pre', 'sql-shown');
    this.numbers.ariaHidden = this.shown.ariaHidden = 'true';
    this.area = Object.assign(make('textarea', 'sql-area'), {
      id, wrap: 'off', spellcheck: false, autocapitalize: 'off', autocomplete: 'off', ariaLabel: label,
    });
    this.area.setAttribute('aria-describedby', describedBy);
    const text = make('div', 'sql-text');
    text.append(this.shown, this.area);
    this.element.append(this.numbers, text);
    this.wrong = null; // the place of an error
    this.area.addEventListener('input', () => {
      this.wrong = null;
      this.#draw();
      typed(this.area.value);
    });
    this.area.addEventListener('beforeinput', (e) => { if (e.inputType === 'insertLineBreak') this.#break(e); });
    this.area.addEventListener('keydown', (e) => this.#key(e));
    this.area.addEventListener('scroll', () => this.area.scrollTo(0, 0)); // the element around it scrolls
    this.#draw();
  }

  get value() { return this.area.value; }

  set value(text) {
    if (this.area.value === text.replace(/\r\n?/g, '\n')) return;
    this.area.value = text;
    this.wrong = null;
    this.#draw();
  }

  /** Marks the place that PostgreSQL means by a position, and returns it as {line, column}. */
  mark(position) {
    this.wrong = offsetOf(this.value, position);
    this.#draw();
    return placeOf(this.value, this.wrong);
  }

  /** Takes the mark away. */
  clear() {
    if (this.wrong === null) return;
    this.wrong = null;
    this.#draw();
  }

  /** Leads the caret to the mark, or only into the editor where there is none. */
  go() {
    this.area.focus({ preventScroll: this.wrong !== null });
    if (this.wrong === null) return;
    this.area.setSelectionRange(this.wrong, this.wrong);
    this.shown.querySelector('.sql-wrong')?.scrollIntoView({ block: 'center', inline: 'nearest' });
  }

  #draw() {
    const text = this.value;
    this.area.ariaInvalid = this.wrong === null ? null : 'true';
    const drawn = text.length > colours ? [{ kind: '', text }] : pieces(text);
    this.shown.replaceChildren(...this.#marked(drawn), '\n'); // the last line counts, though it is empty
    const lines = text.split('\n').length;
    const bad = this.wrong === null ? 0 : placeOf(text, this.wrong).line;
    if (this.drawn !== `${lines} ${bad}`) {
      this.drawn = `${lines} ${bad}`;
      this.numbers.replaceChildren(...numbered(lines, bad));
    }
  }

  /** Elements for pieces; the one at the error's place, from there on, is marked. */
  * #marked(drawn) {
    let at = 0;
    for (const { kind, text } of drawn) {
      const inside = this.wrong === null ? -1 : this.wrong - at;
      at += text.length;
      if (inside < 0 || inside >= text.length) {
        yield span(kind, text);
        continue;
      }
      const [from, to] = spot(kind, text, inside);
      if (from > 0) yield span(kind, text.slice(0, from));
      yield span(`${kind} sql-wrong`, text.slice(from, to));
      if (to < text.length) yield span(kind, text.slice(to));
    }
    if (this.wrong === at) yield span('sql-wrong', ' ');
  }

  /** A new line begins as the one before it does. */
  #break(e) {
    const before = this.value.slice(0, this.area.selectionStart);
    const [blanks] = before.slice(before.lastIndexOf('\n') + 1).match(/^[ \t]*/);
    if (!blanks || e.isComposing) return;
    e.preventDefault();
    this.#insert(`\n${blanks}`);
  }

  #key(e) {
    if (!(e.ctrlKey || e.metaKey)) return;
    const key = keyOf(e);
    if (key !== ']' && key !== '[') return;
    e.preventDefault();
    this.#shift(key === ']');
  }

  /** Indents, or outdents, the lines that are chosen. */
  #shift(further) {
    const { selectionStart: start, selectionEnd: end, value } = this.area;
    const from = value.lastIndexOf('\n', start - 1) + 1;
    const next = value.indexOf('\n', Math.max(from, end - (end > start)));
    const to = next < 0 ? value.length : next;
    const lines = value.slice(from, to).split('\n').map((l) => (further ? indent + l : l.replace(/^( {1,2}|\t)/, '')));
    const text = lines.join('\n');
    if (text === value.slice(from, to)) return;
    this.area.setSelectionRange(from, to);
    this.#insert(text);
    if (start === end) {
      const caret = Math.max(from, start + text.length - (to - from));
      this.area.setSelectionRange(caret, caret);
    } else {
      this.area.setSelectionRange(from, from + text.length);
    }
  }

  /** Puts in a text at the caret. */
  insert(text) { this.#insert(text); }

  /** As if it were typed, so that it can be undone. */
  #insert(text) {
    if (text ? document.execCommand('insertText', false, text) : document.execCommand('delete')) return;
    this.area.setRangeText(text, this.area.selectionStart, this.area.selectionEnd, 'end');
    this.area.dispatchEvent(new Event('input'));
  }
}

function make(tag, className) {
  return Object.assign(document.createElement(tag), { className });
}

/** A piece of that kind; kind: what sql.js calls it, 'sql-wrong', or both. Without one it is text alone. */
function span(kind, text) {
  if (!kind) return text;
  const classes = kind.split(' ').filter(Boolean).map((k) => (k.startsWith('sql-') ? k : `sql-${k}`));
  return Object.assign(make('span', classes.join(' ')), { textContent: text });
}

/** From where to where a piece is marked for an error inside of it: the word there, a sign, or all of a string. */
function spot(kind, text, inside) {
  if (kind) return [inside, text.length];
  const [word] = text.slice(inside).match(/^([\w$\u0080-\uffff]+|[^])/);
  return [inside, inside + word.length];
}

function numbered(lines, bad) {
  const range = (from, to) => Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => from + i).join('\n');
  if (!bad) return [range(1, lines)];
  const number = Object.assign(make('b', ''), { textContent: String(bad) });
  return [range(1, bad - 1), bad > 1 ? '\n' : '', number, bad < lines ? `\n${range(bad + 1, lines)}` : ''];
}
