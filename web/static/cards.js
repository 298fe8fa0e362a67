/** The page's cards: one for each task, one for each work. A card is made once and then updated, so that what
 * somebody types or chooses in it is not lost when something is pushed. All text is set as text. */

import { at, decimals, elapsed, label, outcome, value } from './words.js';

const stamp = (template) => document.getElementById(template).content.firstElementChild.cloneNode(true);

/** A text that is announced when it changes, and left alone when it does not. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let serial = 0; // makes ids for labels

export class TaskCard {
  /** getWork(count) and cancel(request) return promises; what they fail with is shown. */
  constructor(getWork, cancel) {
    this.element = stamp('task-card');
    this.find = (selector) => this.element.querySelector(selector);
    this.request = null;
    this.run = null; // {phase, since} of the task, while one is known
    this.limit = 0;
    this.find('form').addEventListener('submit', (e) => {
      e.preventDefault();
      this.try(() => getWork(Number(this.find('input:checked').value)), e.submitter ?? this.find('form button'));
    });
    const stop = this.find('.pending button');
    stop.addEventListener('click', () => this.try(() => cancel(this.request), stop));
  }

  async try(action, button) {
    say(this.find('.error'), '');
    button.disabled = true;
    try {
      await action();
    } catch (e) {
      say(this.find('.error'), e.message);
    } finally {
      const lost = document.activeElement === document.body;
      button.disabled = false;
      if (lost) (button.checkVisibility() ? button : this.find('.pending:not([hidden]) button, form:not([hidden]) button'))?.focus();
    }
  }

  update(task) {
    this.task = task;
    say(this.find('h3'), task.title || task.name);
    say(this.find('.description'), task.description ?? '');
    say(this.find('.counts'), `${task.waiting} waiting · ${task.held} held${task.paused ? ' · paused' : ''}`);
    const limit = Math.min(5, task.max_request);
    if (limit !== this.limit) this.offer(limit);
    this.find('form button').setAttribute('aria-label', `Get Work: ${task.title || task.name}`);
    this.find('.pending button').setAttribute('aria-label', `Cancel the request: ${task.title || task.name}`);
  }

  /** Lets one choose from 1 to limit. */
  offer(limit) {
    const before = Number(this.find('input:checked')?.value ?? 3);
    this.limit = limit;
    const group = `count-${++serial}`;
    const choices = Array.from({ length: limit }, (_, i) => {
      const choice = document.createElement('label');
      const input = Object.assign(document.createElement('input'), { type: 'radio', name: group, value: String(i + 1) });
      input.checked = i + 1 === Math.min(before, limit);
      choice.append(input, Object.assign(document.createElement('span'), { textContent: String(i + 1) }));
      return choice;
    });
    this.find('.choices').replaceChildren(...choices);
  }

  /** Shows a request that is new, or has ended. ahead: by how many ms the server's clock is. */
  show(request, ahead) {
    const pending = request.state === 'pending';
    if (!pending && this.request && this.request.id !== request.id) return;
    this.request = pending ? request : null;
    if (pending) this.since = Math.min(Date.now(), Date.parse(request.created_at) - ahead);
    else this.run = null;
    const had = this.element.contains(document.activeElement) && document.activeElement.matches('button');
    this.find('form').hidden = pending;
    this.find('.pending').hidden = !pending;
    if (had) this.find(pending ? '.pending button' : 'form button').focus();
    say(this.find('.ended'), outcome(request));
    const cause = this.find('.cause');
    say(cause, request.error ?? '');
    cause.hidden = !request.error;
    this.tick(Date.now());
  }

  /** A run of the task began or ended. */
  ran(run) {
    this.run = run.phase === 'started' ? { since: Date.now() } : { phase: run.phase };
    this.tick(Date.now());
  }

  tick(now) {
    if (!this.request) return;
    const { wanted, position } = this.request;
    say(this.find('.asked'), `Asked for ${wanted} at ${new Date(this.since).toLocaleTimeString()}, ${elapsed(now - this.since)} ago.`);
    const running = this.run?.since;
    let phase = position > 1 ? `Waiting; ${position - 1} asked before you.` : 'Waiting for the result.';
    if (running) phase = 'The query is running:';
    if (this.run?.phase === 'finished') phase = 'The query is done; handing out.';
    say(this.find('.phase [role=status]'), phase);
    say(this.find('.clock'), running ? elapsed(now - running) : '');
  }
}

export class WorkCard {
  /** dispose(disposition) returns a promise; what it fails with is shown. */
  constructor(work, title, dispose) {
    this.element = stamp('work-card');
    this.find = (selector) => this.element.querySelector(selector);
    this.dispose = dispose;
    const key = this.find('h3');
    key.id = `work-${++serial}`;
    this.element.setAttribute('aria-labelledby', key.id);
    say(key, work.item);
    say(this.find('.of'), title);
    const time = this.find('time');
    time.dateTime = work.assigned_at;
    say(time, at(work.assigned_at));
    this.find('textarea').setAttribute('aria-label', `Note on ${work.item}`);
    this.find('select').setAttribute('aria-label', 'Return after');
    this.find('.exact input').setAttribute('aria-label', 'Hours, from 0 to 72');
    this.wire();
  }

  wire() {
    const hours = this.find('select');
    const exact = this.find('.exact');
    hours.addEventListener('change', () => {
      exact.hidden = hours.value !== '';
      if (!exact.hidden) exact.querySelector('input').focus();
    });
    this.find('form').addEventListener('submit', (e) => {
      e.preventDefault();
      // Enter in the field of hours means that, and not the form's first button.
      if (document.activeElement === exact.querySelector('input')) this.giveBack();
      else this.close({ outcome: 'complete' });
    });
    this.find('.back').addEventListener('click', () => this.giveBack());
    const never = this.find('.never');
    never.addEventListener('click', () => {
      if (never.dataset.sure) this.close({ outcome: 'never' });
      else this.askAgain(never);
    });
  }

  /** Only a manager can undo it, so it takes two clicks. */
  askAgain(never) {
    never.dataset.sure = 'yes';
    never.textContent = 'Really never?';
    never.focus(); // not every browser gives a clicked button the focus, and its loss takes the question back
    never.addEventListener('blur', () => {
      delete never.dataset.sure;
      never.textContent = 'Never again';
    }, { once: true });
  }

  giveBack() {
    const input = this.find('.exact input');
    const hours = this.find('select').value || input.value;
    if (hours === '' || !(hours >= 0 && hours <= 72)) {
      say(this.find('.error'), 'It can be returned after 0 to 72 hours.');
      input.focus();
      return;
    }
    this.close({ outcome: 'return', after: `${Math.round(hours * 3600)}s` });
  }

  async close(disposition) {
    const note = this.find('textarea').value.trim();
    const buttons = this.element.querySelectorAll('button');
    say(this.find('.error'), '');
    for (const b of buttons) b.disabled = true;
    try {
      await this.dispose(note ? { ...disposition, note } : disposition);
    } catch (e) {
      say(this.find('.error'), e.message);
    } finally {
      for (const b of buttons) b.disabled = false;
    }
  }

  /** Fills in the details. alike: the works whose columns should be written in the same way. */
  fill(work, alike) {
    const details = work.details ?? {};
    const texts = Object.entries(details).map(([column, v]) => [label(column), value(v, decimals(alike.map((w) => w.details?.[column])))]);
    if (work.note) texts.push(['Note', work.note]);
    const shown = JSON.stringify(texts);
    if (shown === this.shown) return;
    this.shown = shown;
    this.find('dl').replaceChildren(...texts.map(([name, text]) => {
      const pair = document.createElement('div');
      const [dt, dd] = [document.createElement('dt'), document.createElement('dd')];
      dt.dir = dd.dir = 'auto';
      dt.textContent = name;
      dd.textContent = text;
      pair.append(dt, dd);
      return pair;
    }));
  }
}
