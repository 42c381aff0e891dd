// Elements from names, and words for those who listen. Text from others is set as text, never as HTML.

const SIGNS = {
  sun: 'M12 4V2M12 22v-2M4 12H2M22 12h-2M6 6 5 5M19 19l-1-1M18 6l1-1M5 19l1-1M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z',
  moon: 'M20 14A8 8 0 1 1 10 4a6.500 6.500 0 0 0 10 10z',
  auto: 'M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18',
  close: 'M6 6l12 12M18 6L6 18',
  up: 'M12 19V6M6 11l6-6 6 6',
  down: 'M12 5v13M6 13l6 6 6-6',
  dice: 'M5 4h14a1 1 0 0 1 1 1v14a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V5a1 1 0 0 1 1-1zM8.500 8.500h.01M15.500 8.500h.01M12 12h.01M8.500 15.500h.01M15.500 15.500h.01',
  swap: 'M7 4 3 8l4 4M3 8h14M17 12l4 4-4 4M21 16H7',
  undo: 'M9 14 4 9l5-5M4 9h10a6 6 0 0 1 0 12h-3',
  redo: 'M15 14l5-5-5-5M20 9H10a6 6 0 0 0 0 12h3',
};

/** An element: `make('button.quiet', { type: 'button', onclick }, 'Text', child, …)`. */
export function make(what, properties = {}, ...children) {
  const [name, ...classes] = what.split('.');
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(' ');
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key in element && !key.startsWith('aria') && key !== 'list') element[key] = value;
    else if (value !== false) element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const find = (id) => document.getElementById(id);

/** A small drawing, for buttons that have a label of their own. */
export function sign(name) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  svg.classList.add('sign');
  const path = document.createElementNS(svg.namespaceURI, 'path');
  path.setAttribute('d', SIGNS[name]);
  svg.append(path);
  return svg;
}

/** A button with a drawing alone, and the words that say what it does. */
export function signButton(name, label, run, more = {}) {
  return make('button.quiet.icon', { type: 'button', title: label, 'aria-label': label, onclick: run, ...more }, sign(name));
}

export function button(text, run, kind = 'quiet', more = {}) {
  return make(`button.${kind}`, { type: 'button', onclick: run, ...more }, text);
}

/** Read aloud by screen readers, and not shown. */
export function speak(text) {
  find('spoken').textContent = text;
}

/** A message that goes after a while, perhaps with something to do. */
export function note(text, ...actions) {
  put(find('notes'), make('div.note', {}, make('p', {}, text), ...actions), 6000 + 4000 * actions.length);
}

/** What went wrong; it stays until it is closed or another takes its place. */
export function fault(text) {
  put(find('faults'), make('div.note.fault', {}, make('p', {}, text)), 0);
}

function put(place, message, milliseconds) {
  message.append(signButton('close', 'Close the message'));
  message.addEventListener('click', (event) => { if (event.target.closest('button')) message.remove(); });
  place.replaceChildren(message);
  if (milliseconds) setTimeout(() => message.remove(), milliseconds);
}

/** Run something later, once, however often it is asked for. */
export function later(run, milliseconds) {
  let waiting = 0;
  return (...given) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => run(...given), milliseconds);
  };
}

/** What a dialog shows, with its title and a button that closes it. */
export function openDialog(id, title, ...children) {
  const dialog = find(id);
  const close = signButton('close', 'Close', () => dialog.close());
  dialog.replaceChildren(make('div.bar', {}, make('h2', { id: `${id}-title` }, title), close), ...children);
  if (!dialog.open) dialog.showModal();
  return dialog;
}
