/** For somebody who is not logged in: a form under --auth dev, a link where people log in elsewhere, or else only the reason. */

import { html, nothing, render } from './lib/lit-html/lit-html.js';
import { t } from './lang.js';
import { logInAt } from './session.js';

/**
 * Shows it in an element. api: rest()'s calls; problem: why nobody is logged in; before: whether something in this tab waits for
 * whoever was logged in before, undefined if nobody was; entered() is called after a log-in by name.
 */
export function showLogIn(element, { api, problem, before, entered }) {
  element.hidden = false;
  const brand = document.querySelector('.brand');
  brand.closest('header').hidden = true; // it stands over the sheet instead
  const sheet = problem.logIn === '/' ? form((e) => logIn(e, api, entered), problem) : link(problem, before);
  render(html`<div>${brand.cloneNode(true)}${sheet}</div>`, element);
  element.querySelector('#user, a.button')?.focus();
}

const form = (submit, { status, message }) => html`<form id="log-in-form" class="sheet paper" aria-labelledby="hello" @submit=${submit}>
  <div><h1 id="hello">${greeting()}<br>${t`Who are you?`}</h1><p class="soft">${t`This server believes the name that it is told.`}</p></div>
  <div class="field"><label for="user">${t`Name`}</label>
    <input id="user" name="user" autocomplete="username" maxlength="128" required dir="auto"></div>
  <div class="field"><label for="as">${t`Role`}</label>
    <select id="as" name="role">
      <option value="worker">${t`Worker`}</option>
      <option value="manager">${t`Manager`}</option>
      <option value="observer">${t`Observer`}</option>
    </select></div>
  <p id="log-in-error" class="error small" role="alert">${status === 401 ? '' : message}</p>
  <button class="primary" type="submit">${t`Continue`}</button>
</form>`;

/** By the reader's clock: it is their day. */
function greeting() {
  const hour = new Date().getHours();
  return hour < 12 && hour >= 4 ? t`Good morning.` : hour < 18 && hour >= 12 ? t`Good afternoon.` : t`Good evening.`;
}

async function logIn(e, api, entered) {
  e.preventDefault();
  const given = new FormData(e.target);
  try {
    await api.logIn(given.get('user').trim(), given.get('role'));
    entered();
    location.reload();
  } catch (error) {
    document.getElementById('log-in-error').textContent = error.message;
    document.getElementById('user').focus();
  }
}

/** A log-in begins by the user's own click: going there by itself, a browser could go round for ever. */
function link({ status, message, logIn: path }, before) {
  const refused = status !== 401;
  const title = refused ? t`You can’t come in` : before === undefined ? t`Log in` : t`You are logged out`;
  return html`<div class="sheet paper">
    <h1>${title}</h1>
    ${refused || !path ? html`<p id="log-in-error" class="error" dir="auto">${sentence(message)}</p>` : nothing}
    ${before ? html`<p>${t`What was typed here, or not sent yet, waits in this tab for the same person to log in again. If somebody else does, it is dropped.`}</p>` : nothing}
    ${path ? html`<a class="button primary" href=${logInAt(path, refused)}>${refused ? t`Log in as somebody else` : t`Log in`}</a>` : nothing}
  </div>`;
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;
