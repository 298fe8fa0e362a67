const page = 200;

/**
 * The first rows of a list, though it is paged, and of several tasks if any are named: {rows, more}. read({task, cursor, limit})
 * gives a page as {rows, next}; order compares two rows as the list has them.
 */
export async function firstRows(count, tasks, read, order) {
  const lists = await Promise.all((tasks.length ? tasks : [undefined]).map((task) => ofOne(count, (at) => read({ task, ...at }))));
  const rows = lists.flatMap((list) => list.rows).sort(order);
  return { rows: rows.slice(0, count), more: rows.length > count || lists.some((list) => list.more) };
}

async function ofOne(count, read) {
  const rows = [];
  let cursor;
  do {
    const { rows: some, next } = await read({ cursor, limit: Math.min(page, count - rows.length) });
    rows.push(...some);
    cursor = next;
  } while (cursor && rows.length < count);
  return { rows, more: Boolean(cursor) };
}

/** Ids are numbers, written as strings. */
export const byId = (a, b) => Number(a.id) - Number(b.id);
