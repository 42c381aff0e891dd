// Names of LoRAs and embeddings, offered while somebody types: a list below the text, as ARIA's combobox has it.

import { make, speak } from './dom.js';
import { state } from './state.js';

const MOST = 8;
let lists = 0;

/** What stands before the cursor, and what would take its place: after `<`, `<lora:`, or two letters of an embedding. */
export function offered(text, cursor, files = state.files) {
  const before = text.slice(0, cursor);
  const network = /<(?:lora:?|lor?|l)?([^<>:]*)$/.exec(before);
  if (network && before.includes('<')) {
    const wanted = network[1].toLowerCase();
    const names = files.loras.filter((each) => `${each.name} ${each.words}`.toLowerCase().includes(wanted));
    return { start: network.index, options: names.slice(0, MOST).map((each) => ({ shown: each.name, kind: 'LoRA', put: `<lora:${each.name}:1>` })) };
  }
  const word = /[\p{L}\p{N}_.-]{2,}$/u.exec(before);
  if (!word) return { start: cursor, options: [] };
  const wanted = word[0].toLowerCase();
  const names = files.embeddings.filter((name) => name.toLowerCase().includes(wanted) && name !== word[0]);
  return { start: word.index, options: names.slice(0, MOST).map((name) => ({ shown: name, kind: 'embedding', put: name })) };
}

/** Have a text area complete names; the list stands in `box`. */
export function completes(area, box) {
  const id = `names-${++lists}`;
  const list = make('ul.names', { id, role: 'listbox', 'aria-label': 'Names', hidden: true });
  box.append(list);
  for (const [name, text] of [['role', 'combobox'], ['aria-autocomplete', 'list'], ['aria-controls', id], ['aria-expanded', 'false'], ['aria-multiline', 'true']]) area.setAttribute(name, text);
  let found = { start: 0, options: [] };
  let place = 0;

  const close = () => {
    list.hidden = true;
    area.setAttribute('aria-expanded', 'false');
    area.removeAttribute('aria-activedescendant');
  };
  const mark = (next) => {
    place = (next + found.options.length) % found.options.length;
    [...list.children].forEach((row, at) => row.setAttribute('aria-selected', String(at === place)));
    area.setAttribute('aria-activedescendant', list.children[place].id);
    list.children[place].scrollIntoView({ block: 'nearest' });
  };
  const take = (option) => {
    area.setRangeText(option.put, found.start, area.selectionStart, 'end');
    close();
    area.dispatchEvent(new Event('input', { bubbles: true }));
    close();
    area.focus();
  };
  const look = () => {
    found = offered(area.value, area.selectionStart);
    if (!found.options.length) return close();
    list.replaceChildren(...found.options.map((option, at) => make('li', {
      id: `${id}-${at}`, role: 'option', onpointerdown: (event) => { event.preventDefault(); take(option); },
    }, make('b', {}, option.shown), make('span', {}, option.kind))));
    list.hidden = false;
    area.setAttribute('aria-expanded', 'true');
    mark(0);
    speak(`${found.options.length} names`);
  };
  area.addEventListener('input', look);
  area.addEventListener('blur', close);
  area.addEventListener('keydown', (event) => {
    if (list.hidden) return;
    const keys = { ArrowDown: () => mark(place + 1), ArrowUp: () => mark(place - 1), Enter: () => take(found.options[place]), Tab: () => take(found.options[place]), Escape: close };
    if (!(event.key in keys) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  });
}
