/** "Complete and next": asks for one more item for each that was completed so. */
export class Nexts {
  #tasks; #on;
  #requests = new Set(); // ids of requests made here
  #owed = new Map(); // by task: how many items are still to be asked for

  /** on: {failed(why), ended(request)} */
  constructor(tasks, on) {
    this.#tasks = tasks;
    this.#on = on;
  }

  /** Asks for more items of a task. While another request of the task waits, they are asked for after it. */
  async ask(name, more = 1) {
    const owed = (this.#owed.get(name) ?? 0) + more;
    if (owed > 0) this.#owed.set(name, owed);
    const card = this.#tasks.cards.get(name);
    if (!owed || !card || card.busy || card.request) return;
    const asked = Math.min(owed, card.task.max_request);
    this.#owed.set(name, owed - asked); // the rest is asked for after it
    const request = await this.#tasks.ask(name, asked);
    if (card.error) this.#on.failed(card.error);
    if (!request) {
      this.#owed.delete(name);
      return;
    }
    this.#requests.add(request.id);
    const ended = request.state === 'pending' ? card.ended : request; // a push may have overtaken the answer
    if (ended?.id === request.id) this.#ended(ended);
    this.ask(name, 0);
  }

  /** A request is new, or has changed. */
  heard(request) {
    if (this.#requests.has(request.id) && request.state !== 'pending') this.#ended(request);
    this.ask(request.task, 0);
  }

  #ended(request) {
    this.#requests.delete(request.id);
    if (request.assigned === 0) this.#owed.delete(request.task);
    this.#on.ended(request);
  }
}
