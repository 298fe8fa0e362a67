/** Tasks, for managers: all of them, a new one, or one with its settings, query, versions and runs. */

import { openTask } from './tasks/task.js';

/** Returns what opens the address. The list's module is loaded with the list: a task's page is large without it. */
export async function load() {
  if (location.pathname !== '/tasks' || new URLSearchParams(location.search).has('new')) return { open: openTask };
  const { openList } = await import('./tasks/list.js');
  return { open: openList };
}
