package page

// UndoLasts is a page script that keeps outcomes from being sent by themselves, until a test calls passes.
const UndoLasts = `(() => {
	const { setTimeout: later, clearTimeout: never } = window, held = new Map();
	window.setTimeout = (f, ms, ...rest) => {
		const outbox = /\badd\b.*outbox\.js/.test(new Error().stack); // and not its retries
		const id = later(f, outbox ? 1e9 : ms, ...rest);
		if (outbox) held.set(id, f);
		return id;
	};
	window.clearTimeout = (id) => {
		held.delete(id);
		never(id);
	};
	window.passes = () => held.forEach((f, id) => held.delete(id) && f());
})()`

// NoMouse fails the test if the mouse was used in the page.
const NoMouse = `for (const type of ['pointerdown', 'mousedown', 'touchstart']) addEventListener(type, (e) => { if (e.isTrusted) throw new Error('a mouse was used'); }, true)`
