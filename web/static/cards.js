/** The page's cards: one for each task, one for each work. A card is made once and then updated, so that what
 * somebody types or chooses in it is not lost when something is pushed. All text is set as text. */

import { at, decimals, elapsed, label, milliseconds, outcome, remaining, value } from './words.js';

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
    say(this.find('.ended'), outcome(request, this.task?.max_open));
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
  /**
   * The card of held work. acts: {dispose(work, disposition), extend(work), claim(work), dismiss(work)} return
   * promises; what they fail with is shown.
   */
  constructor(work, acts) {
    this.element = stamp('work-card');
    this.find = (selector) => this.element.querySelector(selector);
    this.acts = acts;
    this.lost = false;
    const key = this.find('h3');
    key.id = `work-${++serial}`;
    this.element.setAttribute('aria-labelledby', key.id);
    say(key, work.item);
    this.find('textarea').setAttribute('aria-label', `Note on ${work.item}`);
    this.find('select').setAttribute('aria-label', 'Return after');
    this.find('.exact input').setAttribute('aria-label', 'Hours, from 0 to 72');
    this.find('.keep').setAttribute('aria-label', `Keep ${work.item}`);
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
      // Enter where one says how to return it means that, and not the form's first button.
      if (this.find('.return').contains(document.activeElement)) this.giveBack();
      else this.close({ outcome: 'complete' });
    });
    this.find('.back').addEventListener('click', () => this.giveBack());
    const never = this.find('.never');
    never.addEventListener('click', () => {
      if (never.dataset.sure) this.close({ outcome: 'never' });
      else this.askAgain(never);
    });
    this.find('.keep').addEventListener('click', () => this.try(() => this.acts.extend(this.work)));
    this.find('.again').addEventListener('click', () => this.claim());
    this.find('.dismiss').addEventListener('click', () => this.acts.dismiss(this.work));
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
    const to = this.find('.others').checked ? 'others' : 'all';
    this.close({ outcome: 'return', after: `${Math.round(hours * 3600)}s`, to });
  }

  /** What was typed as a note. */
  get note() { return this.find('textarea').value.trim(); }

  close(disposition) {
    const { note } = this;
    return this.try(() => this.acts.dispose(this.work, note ? { ...disposition, note } : disposition));
  }

  async claim() {
    const again = this.find('.again');
    again.textContent = 'Claiming …'; // the query may have to run for it
    await this.try(() => this.acts.claim(this.work), (e) => `It can’t be claimed: ${e.message}.`);
    again.textContent = 'Claim it again';
  }

  /** Buttons rest while it is done; a failure is shown, unless meanwhile the card itself says that the work is lost. */
  async try(action, wording = (e) => e.message) {
    const buttons = this.element.querySelectorAll('button');
    const { activeElement } = document;
    const { lost } = this;
    say(this.find('.error'), '');
    for (const b of buttons) b.disabled = true;
    try {
      await action();
    } catch (e) {
      if (this.lost === lost) say(this.find('.error'), wording(e));
    } finally {
      for (const b of buttons) b.disabled = false;
      const left = document.activeElement === document.body && this.element.contains(activeElement);
      if (left) (activeElement.checkVisibility() ? activeElement : this.find('h3')).focus();
    }
  }

  /** left: ms of its lease, or null. task: its task, if it is known. alike: works whose columns are written alike. */
  fill(work, left, task, alike) {
    const begins = this.work?.id !== work.id;
    this.work = work;
    if (begins) this.begin();
    this.span = milliseconds(this.work.lease); // of its lease
    say(this.find('.of'), task?.title || work.task);
    say(this.find('.which'), which(work, task));
    this.tick(left);
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

  /** The card is new, or its item is back: what was typed is still there. */
  begin() {
    const time = this.find('time');
    time.dateTime = this.work.assigned_at;
    say(time, at(this.work.assigned_at));
    this.tried = -Infinity; // when it was last renewed by itself
    if (!this.lost) return;
    const inside = this.find('.lost').contains(document.activeElement) || this.find('.lost button').disabled;
    this.lost = false;
    this.find('form').hidden = false;
    this.find('.lost').hidden = true;
    say(this.find('.why'), '');
    say(this.find('.error'), '');
    if (inside) this.find('h3').focus();
  }

  /** Shows what is left of the lease (ms; null: it has none), and reports whether it is about to run out. */
  tick(left) {
    const soon = left !== null && !this.lost && (this.work.expiring || left <= this.span / 5);
    const lease = this.find('.lease');
    lease.hidden = left === null || this.lost;
    lease.classList.toggle('soon', soon);
    this.find('.keep').classList.toggle('primary', soon);
    if (left !== null) say(this.find('.left'), remaining(Math.min(left, this.span)));
    say(this.find('.warning'), soon ? 'Soon it goes back to the queue: keep it, or let go of it.' : '');
    return soon;
  }

  /** Somebody is at it: renews the lease when a quarter of it is used up, and as rarely when that fails. */
  renew(left, now) {
    const due = left !== null && (this.work.expiring || left <= this.span * 0.75);
    if (!due || now - this.tried < this.span / 4) return;
    this.tried = now;
    this.acts.extend(this.work).catch(() => {}); // what is lost says so; else it is tried again
  }

  /** The work is gone, but the card stays, with what was typed in it. again: it makes sense to claim the item. */
  lose(why, again) {
    const parts = [this.find('form'), this.find('.lease')];
    const inside = parts.some((part) => part.contains(document.activeElement));
    this.lost = true;
    for (const part of parts) part.hidden = true;
    this.find('.lost').hidden = false;
    this.find('.again').hidden = !again;
    if (this.note) this.find('details').open = true;
    say(this.find('.why'), this.note ? `${why} Your note is kept.` : why);
    say(this.find('.error'), '');
    if (inside) this.find(again ? '.again' : '.dismiss').focus();
  }
}

/** Which attempt and which place it is, where there are several. */
function which({ attempt, slot }, task) {
  const of = task?.slots > 1 && slot <= task.slots ? ` of ${task.slots}` : '';
  return (attempt > 1 ? ` · attempt ${attempt}` : '') + (slot > 1 || of ? ` · place ${slot}${of}` : '');
}
