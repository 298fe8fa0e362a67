/** Tasks, for managers: all of them, a new one, or one with its settings, query, versions and runs. */

import { openList } from './tasks/list.js';
import { openTask } from './tasks/task.js';

export function open(app, place) {
  return place.name || place.search.has('new') ? openTask(app, place) : openList(app, place);
}
