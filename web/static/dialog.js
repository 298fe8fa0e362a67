/** Dialogs: a question, a form, and one that a view fills. */

import { html, nothing, render } from './lib/lit-html/lit-html.js';
import { t } from './lang.js';

/**
 * Makes a dialog, which draw(template) fills and shows; its title has the id 'dialog-title'. It is closed by close(value), by
 * Escape if mayCancel() then is true, and by the signal. closed is a promise of that value, or of undefined if it was cancelled.
 */
export function newDialog(className, signal, mayCancel = () => true) {
  const element = Object.assign(document.createElement('dialog'), { className });
  for (const type of ['keydown', 'cancel']) { // a browser may not let a second cancel be prevented, but it does the key
    element.addEventListener(type, (e) => { if ((type === 'cancel' || e.key === 'Escape') && !mayCancel()) e.preventDefault(); });
  }
  element.setAttribute('aria-labelledby', 'dialog-title');
  document.body.append(element);
  let result;
  let shown = false;
  const close = (value) => {
    result = value;
    element.close();
  };
  const draw = (template) => {
    render(template, element);
    if (shown) return; // also if it has been closed since
    shown = true;
    element.showModal();
  };
  signal?.addEventListener('abort', () => close());
  const closed = new Promise((resolve) => element.addEventListener('close', () => {
    element.remove();
    resolve(result);
  }));
  return { draw, close, closed };
}

/**
 * Asks a question; the promise says whether the answer was yes. danger: the action can't be undone. The browser's Back button means
 * no. A page that is hidden, because its session has ended, asks nothing: nobody could answer.
 */
export function ask({ title, text, yes, no = t`Cancel`, danger = false }) {
  if (document.body.hidden) return Promise.resolve(false);
  const dialog = newDialog('ask');
  const answered = new AbortController();
  window.addEventListener('popstate', () => dialog.close(false), { signal: answered.signal });
  dialog.draw(html`<form method="dialog">
    <h2 id="dialog-title" dir="auto">${title}</h2>
    <p dir="auto">${text}</p>
    <div class="toolbar">
      <button value="no">${no}</button>
      <button value="yes" class=${danger ? 'danger' : 'primary'} @click=${() => dialog.close(true)}>${yes}</button>
    </div>
  </form>`);
  return dialog.closed.then((yes) => {
    answered.abort();
    return Boolean(yes);
  });
}

/**
 * Asks with a form. body is a template of its fields, and yes the button's text. act(FormData) acts on the input; if it fails,
 * the dialog shows the error and stays open with the input. While it acts, the dialog stays, too: its result, such as a new secret,
 * may be shown only once. The promise has act's result, or undefined.
 */
export function askForm({ title, body, yes, danger = false, act, signal }) {
  const dialog = newDialog('ask', signal, () => !busy);
  let busy = false;
  let error = '';
  const submit = async (e) => {
    e.preventDefault();
    if (busy) return;
    const form = new FormData(e.target);
    busy = true;
    error = '';
    draw();
    try {
      dialog.close(await act(form));
    } catch (e) {
      busy = false;
      error = e.message;
      draw();
    }
  };
  const draw = () => dialog.draw(html`<form @submit=${submit}>
    <h2 id="dialog-title" dir="auto">${title}</h2>
    ${body}
    <p class="error" role="alert" dir="auto">${error}</p>
    <div class="toolbar">
      <button type="button" aria-disabled=${busy ? 'true' : nothing} @click=${() => { if (!busy) dialog.close(); }}>${t`Cancel`}</button>
      <button type="submit" class=${danger ? 'danger' : 'primary'}
        aria-disabled=${busy ? 'true' : nothing}>${busy ? t`One moment …` : yes}</button>
    </div>
  </form>`);
  draw();
  return dialog.closed;
}
