/** Keyboard shortcuts: single keys, which a view adds and which the help, behind "?", lists. They can be switched off there. */

import { html, render } from './lib/lit-html/lit-html.js';
import { t } from './lang.js';

const stored = 'getwork.shortcuts';
const patience = 2000; // ms between the keys of a sequence
const typing = 'input:not([type=radio], [type=checkbox]), select, textarea, [contenteditable], dialog';

const places = { Slash: ['/', '?'], BracketLeft: ['[', '{'], BracketRight: [']', '}'] };
let latin = true; // whether the last letter was

/**
 * The key of an event, as KeyboardEvent.key has it. If the keyboard's layout has no Latin letters, such as Cyrillic, it goes by the
 * key's place, or no letter would be a shortcut there. Such a layout may have an apostrophe or foreign digits where others have
 * something else: it is known by the last letter.
 */
export function keyOf(e) {
  const { key, code } = e;
  const other = /^[^\p{Script=Latin}\p{Script=Common}\p{Script=Inherited}]+$/u.test(key);
  if (other || /^\p{Script=Latin}$/u.test(key)) latin = !other;
  if (latin || (!other && key.length > 1) || e.getModifierState('AltGraph')) return key;
  const [, letter, digit] = /^(?:Key(.)|Digit(.))$/.exec(code) ?? [];
  if (letter) return e.shiftKey ? letter : letter.toLowerCase();
  return /^\p{ASCII}$/u.test(key) ? key : digit ?? places[code]?.[e.shiftKey ? 1 : 0] ?? key;
}

/**
 * Returns keys(list, signal), which adds shortcuts until the signal is aborted: list is [{key, does, run, repeat}], such as
 * {key: 'c', does: 'Complete', run: () => …}. A key is as keyOf() has it, or a sequence of two: 'g 1'. Without does it is
 * not listed, without run it is only listed. If run returns false, the key keeps its usual effect. repeat: it repeats while
 * the key is held down. Keys do not count in text fields, nor with Ctrl, Alt or Meta.
 * help is the button that opens the help.
 */
export function shortcuts(help) {
  const known = new Set();
  let first = ''; // of a sequence that has begun
  let timer;
  const on = () => localStorage.getItem(stored) !== 'off';
  const show = () => { document.documentElement.dataset.keys = on() ? 'on' : 'off'; };
  const find = (key) => [...known].flat().find((s) => s.run && s.key === key);
  const open = () => openHelp([...known].flat().filter((s) => s.does), on(), (yes) => {
    localStorage.setItem(stored, yes ? 'on' : 'off');
    show();
  });
  known.add([{ key: '?', does: t`This help`, run: open }]);
  help.addEventListener('click', open);
  show();
  document.addEventListener('keydown', (e) => {
    if (!on() || e.ctrlKey || e.altKey || e.metaKey || e.defaultPrevented || e.isComposing || e.target.closest?.(typing)) return;
    if (e.key === 'Shift') return; // digits need it on some keyboards
    const pressed = keyOf(e);
    const key = first ? `${first} ${pressed}` : pressed;
    const found = find(key);
    first = '';
    if (found && (found.repeat || !e.repeat)) {
      if (found.run() !== false) e.preventDefault();
    } else if (!e.repeat && [...known].flat().some((s) => s.key.startsWith(`${pressed} `))) {
      first = pressed;
      clearTimeout(timer);
      timer = setTimeout(() => { first = ''; }, patience);
    }
  });
  return (list, signal) => {
    known.add(list);
    signal?.addEventListener('abort', () => known.delete(list));
  };
}

const names = { ArrowDown: '↓', ArrowUp: '↑', ArrowLeft: '←', ArrowRight: '→', Escape: t`Esc`, Enter: t`Enter` };

function openHelp(list, on, turn) {
  const dialog = document.createElement('dialog');
  dialog.className = 'keys';
  dialog.setAttribute('aria-labelledby', 'keys-title');
  render(html`<form method="dialog">
    <h2 id="keys-title">${t`Keyboard shortcuts`}</h2>
    <div class="scroll" tabindex="0" role="region" aria-labelledby="keys-title"><table><tbody>${list.map(({ key, does }) => html`<tr>
      <th scope="row">${key.split(' ').map((k) => html`<kbd>${names[k] ?? k}</kbd> `)}</th><td>${does}</td></tr>`)}</tbody></table></div>
    <label><input type="checkbox" .checked=${on} @change=${(e) => turn(e.target.checked)}> ${t`Single keys are shortcuts`}</label>
    <p class="quiet">${t`Everything can be done with Tab and Enter, too.`}</p>
    <button class="primary">${t`Close`}</button>
  </form>`, dialog);
  document.body.append(dialog);
  dialog.addEventListener('close', () => dialog.remove());
  dialog.showModal();
}
