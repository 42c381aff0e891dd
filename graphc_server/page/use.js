// Pictures that are used: to begin with, or for their settings. They come from the gallery, by drag, by paste, or from a file.

import { dataUri, get, post } from './api.js';
import { button, fault, find, make, note, speak } from './dom.js';
import { changed, parameter, state } from './state.js';

/** Begin with a picture: an address of this server, or a file; `edited` if its mask is painted at once. */
export async function begin(place, edited = false) {
  try {
    const url = await dataUri(place);
    const picture = make('img', { src: url });
    await picture.decode();
    state.start = { url, width: picture.naturalWidth, height: picture.naturalHeight, margins: { left: 0, top: 0, right: 0, bottom: 0 }, strokes: [], undone: [], mask: null };
    fitSize();
    changed('start');
    if (!edited) note('The next picture begins with this one.', button('Paint over a part', () => changed('edit')));
    return true;
  } catch {
    fault('This is no picture that can be read.');
    return false;
  }
}

/** The size of what is painted is the picture's, with what is added at its sides. */
export function fitSize() {
  const { width, height, margins } = state.start;
  const unit = Math.max(state.described?.unit ?? 8, 8);
  const side = (length, name) => Math.min(Math.max(Math.floor(length / unit) * unit, unit), parameter(name)?.most ?? 4096);
  state.chosen.width = side(width + margins.left + margins.right, 'width');
  state.chosen.height = side(height + margins.top + margins.bottom, 'height');
}

export function leaveStart() {
  state.start = null;
  delete state.chosen.width;
  delete state.chosen.height;
  changed('start');
}

/** The settings of a picture of the gallery. */
export async function useAgain(address) {
  try {
    restoreFrom(await get(address));
    return true;
  } catch (problem) {
    fault(problem.message);
    return false;
  }
}

function restoreFrom(said) {
  const found = Object.fromEntries(Object.entries(said.settings).filter(([, value]) => value !== null));
  state.start = null;
  state.chosen = found;
  if (said.model && said.model !== state.model) state.model = said.model;
  changed('restored');
  const missing = said.labels?.Model && !said.model ? ` Its model, ${said.labels.Model}, is not here.` : '';
  note(`The settings are those of the picture.${missing}`);
  speak('Settings restored');
  location.hash = '#create';
}

/** A file that somebody gave: its settings if it has any, else it is what to begin with. */
export async function given(file) {
  try {
    const url = await dataUri(file);
    const said = await post('/graphc/v1/notes', { picture: url });
    if (!Object.keys(said.settings).length) return await begin(file);
    restoreFrom(said);
    note('The settings are those of the picture.', button('Begin with it too', () => begin(file)));
  } catch (problem) {
    fault(problem.message);
  }
}

export function startUse() {
  let inside = 0;
  const over = (event) => [...(event.dataTransfer?.types ?? [])].includes('Files');
  const show = (shown) => { inside = shown ? inside : 0; find('drop').hidden = !shown; };
  document.addEventListener('dragenter', (event) => { if (over(event)) { inside += 1; show(true); } });
  document.addEventListener('dragleave', (event) => { if (over(event) && --inside <= 0) show(false); });
  document.addEventListener('dragover', (event) => { if (over(event)) event.preventDefault(); });
  document.addEventListener('drop', (event) => {
    show(false);
    const file = [...(event.dataTransfer?.files ?? [])].find((each) => each.type.startsWith('image/'));
    if (!file) return;
    event.preventDefault();
    given(file);
  });
  document.addEventListener('paste', (event) => {
    const file = [...(event.clipboardData?.files ?? [])].find((each) => each.type.startsWith('image/'));
    if (file) { event.preventDefault(); given(file); }
  });
  find('file').addEventListener('change', (event) => {
    if (event.target.files[0]) begin(event.target.files[0]);
    event.target.value = '';
  });
}
