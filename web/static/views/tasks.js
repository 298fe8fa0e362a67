/** Tasks, for managers: all of them, a new one, or one with its settings, query, versions and runs. */

/** Returns what opens the address. The list and a task's page are loaded without each other: both are large. */
export async function load() {
  if (location.pathname !== '/tasks' || new URLSearchParams(location.search).has('new')) {
    const { openTask } = await import('./tasks/task.js');
    return { open: openTask };
  }
  const { openList } = await import('./tasks/list.js');
  return { open: openList };
}
