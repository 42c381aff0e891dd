// The parameters that the model has, in groups that say what they hold while they are closed.

import { button, find, make, signButton } from './dom.js';
import { dataUri } from './api.js';
import { changed, choose, counts, hasMask, on, parameter, state, value } from './state.js';
import { controlsField } from './controls.js';
import { promptField } from './words.js';

const GROUPS = [
  { name: 'size', label: 'Size', says: () => `${value('width')} × ${value('height')}${pictures() > 1 ? `, ${pictures()} pictures` : ''}` },
  { name: 'sampling', label: 'Sampling', says: () => `${value('steps')} steps, ${value('sampler')}, CFG ${value('cfg_scale')}` },
  { name: 'seed', label: 'Seed', says: () => (value('seed') < 0 ? 'any' : `${value('seed')}`) + (value('subseed_strength') ? ', varied' : '') },
  { name: 'picture', label: 'Begin with a picture', says: () => (state.start ? `${state.start.width} × ${state.start.height}` : 'none') },
  { name: 'mask', label: 'Mask', says: () => `${value('inpainting_fill')}, ${value('only_masked') ? 'the masked part alone' : 'the whole picture'}`, shown: () => hasMask() },
  { name: 'again', label: 'Enlarge', says: () => (value('hires_scale') > 1 ? `${value('hires_scale')} times, ${value('hires_upscaler')}` : 'no'), shown: () => !state.start },
  { name: 'control', label: 'ControlNet', says: () => state.controls.map((each) => each.model).join(', ') || 'none' },
  { name: 'references', label: 'References', says: () => `${Object.keys(state.pictures).length || 'none'}` },
  { name: 'refiner', label: 'Refiner', says: () => value('refiner') || 'none' },
  { name: 'guidance', label: 'Guidance', says: () => touched('guidance') },
  { name: 'noise', label: 'Noise', says: () => touched('noise') },
  { name: 'more', label: 'More', says: () => touched('more') },
];
const SHAPES = { 'Square': 1, 'Landscape 3:2': 1.5, 'Portrait 2:3': 1 / 1.5, 'Wide 16:9': 16 / 9 };

const pictures = () => value('batches') * value('batch_size');
const of = (group) => state.described.parameters.filter((each) => each.group === group);
const visible = (each) => counts(each) && (state.everything || !each.rare || each.name in state.chosen);

function touched(group) {
  const count = of(group).filter((each) => each.name in state.chosen).length;
  return count ? `${count} changed` : 'usual';
}

/** All groups anew, for another model. */
export function drawGroups() {
  const open = new Set([...document.querySelectorAll('#groups details[open]')].map((each) => each.dataset.group));
  find('groups').replaceChildren(...GROUPS.filter((group) => of(group.name).length).map((group) => {
    const inside = make('div.inside', {}, ...(EXTRAS[group.name]?.() ?? []), ...of(group.name).map(field).filter(Boolean));
    return make('details', { 'data-group': group.name, open: open.has(group.name) },
      make('summary', {}, make('span', {}, group.label), make('span.says', { id: `says-${group.name}` })), inside);
  }));
  find('everything').checked = state.everything;
  refresh();
}

/** What is shown, and what closed groups say. */
export function refresh() {
  if (!state.described) return;
  for (const group of GROUPS) {
    const details = document.querySelector(`[data-group="${group.name}"]`);
    if (!details) continue;
    const some = of(group.name).some(visible) && (group.shown?.() ?? true);
    details.hidden = !some;
    find(`says-${group.name}`).textContent = group.says();
    for (const row of details.querySelectorAll('[data-name]')) row.hidden = !visible(parameter(row.dataset.name));
  }
}

const EXTRAS = {
  more: others,
  size: () => [make('div.shapes', { role: 'group', 'aria-label': 'Shapes' }, ...Object.entries(SHAPES).map(([label, shape]) => button(label, () => reshape(shape))),
    signButton('swap', 'Swap width and height', () => set({ width: value('height'), height: value('width') })))],
  picture: () => [make('div.start', {}, make('div', { id: 'start' }), button('Choose a picture', () => find('file').click(), 'quiet', { id: 'choose' }))],
};

/** What is no setting of a picture: the autoencoder's file, and how pictures are shown while they are painted. */
function others() {
  const { vaes } = state.files;
  const take = (name, given) => { state[name] = given; changed('chosen'); };
  const select = (id, label, names, name) => {
    const made = make('select', { id, onchange: () => take(name, made.value) }, ...names.map(([text, said]) => make('option', { value: text }, said)));
    made.value = state[name];
    return make('div.field', {}, make('div.label', {}, make('label', { htmlFor: id }, label)), made);
  };
  const every = make('input', { id: 'preview-every', type: 'number', min: 0, max: 100, value: state.previewEvery, onchange: () => take('previewEvery', Math.max(Math.round(Number(every.value)) || 0, 0)) });
  return [
    vaes.length ? select('vae', 'Autoencoder', [['', "the model's own"], ...vaes.map((name) => [name, name])], 'vae') : null,
    make('div.field', {}, make('div.label', {}, make('label', { htmlFor: every.id, title: '0 for no previews' }, 'Preview after steps'), every)),
    select('preview-by', 'Preview by', [['rough', 'a matrix (fast)'], ['tiny', 'the tiny autoencoder'], ['full', 'the whole autoencoder (slow)']], 'previewBy'),
  ].filter(Boolean);
}

/** As many pixels as the model is used to, in another shape. */
function reshape(shape) {
  const area = parameter('width').usual * parameter('height').usual;
  const unit = Math.max(state.described.unit, 8);
  const side = (length) => Math.max(Math.round(length / unit) * unit, unit);
  set({ width: side(Math.sqrt(area * shape)), height: side(Math.sqrt(area / shape)) });
}

/** Values, and the fields that show them. */
export function set(values) {
  for (const [name, given] of Object.entries(values)) choose(name, given);
  drawGroups();
}

const FIELDS = { whole: number, number, choice, switch: switched, text: (each) => promptField(each, 2), record, picture, pictures: picture, controls: controlsField };

function field(each) {
  if (each.name === 'image' || each.name === 'mask') return null;
  return FIELDS[each.kind](each);
}

function labelled(each, id, control, beside) {
  return make('div.field', { 'data-name': each.name },
    make('div.label', {}, make('label', { htmlFor: id, title: each.says }, each.label), beside ?? null), control,
    each.says && each.rare ? make('p.hint', { id: `${id}-hint` }, each.says) : null);
}

function number(each) {
  const id = `p-${each.name}`;
  const given = value(each.name);
  const box = make('input', { id, type: 'number', step: each.kind === 'whole' && each.step === 1 ? 1 : 'any', value: given ?? '', placeholder: given === null ? 'usual' : '', inputMode: 'decimal' });
  const seed = each.name === 'seed' || each.name === 'subseed';
  const slider = seed ? null : make('input', { type: 'range', min: each.least, max: each.most, step: each.step, value: given ?? each.least, tabIndex: -1, 'aria-hidden': 'true' });
  const take = (text) => choose(each.name, text === '' ? null : each.kind === 'whole' ? Math.round(Number(text)) : Number(text));
  box.addEventListener('input', () => {
    if (box.value === '' && box.validity.badInput) return;
    take(box.value);
    if (slider) slider.value = box.value === '' ? each.usual ?? each.least : box.value;
  });
  box.addEventListener('blur', () => { if (box.value === '') box.value = value(each.name) ?? ''; });
  slider?.addEventListener('input', () => {
    box.value = String(Number(Number(slider.value).toFixed(4)));
    take(box.value);
  });
  if (!seed) return labelled(each, id, slider, box);
  const any = signButton('dice', 'Any seed', () => { box.value = -1; take('-1'); });
  return labelled(each, id, make('div.seeds', {}, box, any));
}

function choice(each) {
  const id = `p-${each.name}`;
  const given = value(each.name);
  const optional = each.usual === null;
  const names = each.choices.includes(given) || given === null ? each.choices : [given, ...each.choices];
  const select = make('select', { id, onchange: () => choose(each.name, select.value) },
    ...(optional ? [make('option', { value: '' }, 'usual')] : []), ...names.map((name) => make('option', { value: name }, name)));
  select.value = given ?? '';
  return labelled(each, id, select);
}

function switched(each) {
  const box = make('input', { type: 'checkbox', role: 'switch', checked: Boolean(value(each.name)), onchange: () => choose(each.name, box.checked) });
  return make('div.field', { 'data-name': each.name }, make('label.switch', { title: each.says }, box, make('span', {}, each.label)),
    each.says && each.rare ? make('p.hint', {}, each.says) : null);
}

function record(each) {
  const given = () => state.chosen[each.name] ?? each.parts;
  const words = (name) => name.replaceAll('_', ' ');
  const part = ([name, usual]) => {
    const put = (next) => choose(each.name, { ...given(), [name]: next });
    const box = typeof usual === 'boolean'
      ? make('input', { type: 'checkbox', checked: given()[name], onchange: () => put(box.checked) })
      : make('input', { type: typeof usual === 'number' ? 'number' : 'text', step: 'any', value: given()[name], onchange: () => put(typeof usual === 'number' ? Number(box.value) : box.value) });
    return make('label.part', {}, make('span', {}, words(name)), box);
  };
  const parts = make('div.parts', { hidden: !(each.name in state.chosen) }, ...Object.entries(each.parts).map(part));
  const on_ = make('input', { type: 'checkbox', role: 'switch', checked: each.name in state.chosen, onchange: () => {
    choose(each.name, on_.checked ? { ...each.parts } : null);
    parts.hidden = !on_.checked;
  } });
  return make('fieldset.field', { 'data-name': each.name }, make('legend.unseen', {}, each.label),
    make('label.switch', {}, on_, make('span', {}, each.label)), make('p.hint', {}, each.says), parts);
}

function picture(each) {
  const id = `p-${each.name}`;
  const box = make('input', { id, type: 'file', accept: 'image/*', onchange: async () => {
    if (box.files[0]) state.pictures[each.name] = await dataUri(box.files[0]);
    else delete state.pictures[each.name];
    changed('chosen', each.name);
  } });
  return labelled(each, id, box);
}

export function startForm() {
  find('everything').addEventListener('change', (event) => {
    state.everything = event.target.checked;
    changed('chosen');
  });
  on('chosen', refresh);
  on('start', refresh);
}
