/** Another user saved the task during an edit: who, what, and the choices. No choice loses input. */

import { html, nothing } from '../../lib/lit-html/lit-html.js';
import { t } from '../../lang.js';
import { when } from '../../parts.js';
import { isText, valueText } from './settings.js';
import { lineDiff } from './versions.js';

/** theirs: {task, versions}, the newer ones, newest first. me: this page's user. */
export function conflict({ form, theirs, me, saveMine, loadTheirs, goOn }) {
  const { task, versions } = theirs;
  const meets = form.against(task);
  const texts = meets.filter(({ field }) => isText(field));
  return html`<section class="paper stack conflict" aria-labelledby="conflict-title">
    <h2 id="conflict-title" tabindex="-1">${t`Changed while you typed`}</h2>
    <ul>${versions.map((v) => html`<li>${t`Version ${v.version} was saved by ${html`<b><bdi>${v.created_by}</bdi></b>${
      v.created_by === me ? ` ${t`(you, elsewhere)`}` : ''}`}, ${when(v.created_at)}.`}</li>`)}</ul>
    <p>${t`What you typed is still here, and not saved.`}</p>
    <div class="scroll" tabindex="0" role="region" aria-label=${t`What differs`}><table>
      <thead><tr><th scope="col">${t`Setting`}</th><th scope="col">${t`was (version ${form.base.version})`}</th>
        <th scope="col">${t`now (version ${task.version})`}</th><th scope="col">${t`yours`}</th></tr></thead>
      <tbody>${meets.map(row)}</tbody>
    </table></div>
    ${texts.map(({ field, was, theirs: now, mine }) => (mine === undefined
      ? html`<h3>${t`${field.label}: what they changed`}</h3>${lineDiff(was ?? '', now ?? '', field.label)}`
      : html`<h3>${t`${field.label}: from theirs to yours`}</h3>${lineDiff(now ?? '', typedText(mine) ?? '', field.label)}`))}
    <div class="bar">
      <button type="button" id="save-mine" class="primary" @click=${saveMine}>${t`Save mine over it`}</button>
      <button type="button" id="go-on" @click=${goOn}>${t`Keep mine, and look again before I save`}</button>
      <button type="button" id="load-theirs" @click=${loadTheirs}>${t`Load theirs`}</button>
    </div>
    <p class="soft">${t`Saving yours changes only what you typed; what they changed elsewhere stays.`}</p>
  </section>`;
}

function row({ field, was, theirs, mine, byThem }) {
  const text = (v, changed) => (isText(field) ? changed && t`changed, see below` : valueText(field, v));
  const both = byThem && mine !== undefined;
  return html`<tr>
    <th scope="row">${field.label}${both ? html` <span class="tag" data-time="half">${t`both of you`}</span>` : nothing}</th>
    <td dir="auto">${text(was, false) || '–'}</td>
    <td dir="auto">${byThem ? text(theirs, true) : html`<span class="soft">${t`unchanged`}</span>`}</td>
    <td dir="auto">${mine === undefined ? html`<span class="soft">${t`not typed`}</span>` : text(typedText(mine), true)}</td>
  </tr>`;
}

/** Invalid input is shown as it was typed. */
const typedText = (mine) => (mine?.list ? [...mine.list, mine.adding] : mine);
